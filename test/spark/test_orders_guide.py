"""The guide's orders with corrections, done as it stands there."""

from __future__ import annotations

import subprocess

from harness.documents import GUIDE, examples_of
from harness.queues import running_queue
from harness.spark_jobs import prepared, tools


def test_orders_are_there_once_as_they_are_now(tmp_path, monkeypatch):
    [files] = examples_of("sh", "orders", GUIDE)
    [script] = examples_of("python", "orders", GUIDE)
    [reading] = examples_of("python", "table", GUIDE)
    subprocess.run(["bash", "-euc", files], cwd=tmp_path, check=True)
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"}
    settings = {"exec_prefix": "", "env_vars": env, "spark": {"threads": 2}}
    with running_queue(tmp_path / "root", script, "shop", **settings) as queue:
        for part in ("first", "second"):
            data = (tmp_path / part / "orders.csv").read_bytes()
            msg_id = prepared(queue, {"orders.csv": data})
            assert queue.ended(msg_id, seconds=120)["state"] == "done"
        monkeypatch.chdir(queue.root.path)
        seen: dict[str, object] = {}
        exec(reading, seen)
    states = seen["now"].select("id", "state").rows()
    assert states == [(1, "new"), (2, "paid"), (3, "new")]
    assert [str(price) for price in seen["now"]["price"]] == ["20.50", "7.00", "1.00"]
    [wrong] = seen["wrong"].select("column", "rule", "value").rows()
    assert wrong == ("price", "at least 0", "-1.00")
