"""What the guide and the examples say of jobs without Spark, done as it stands there."""

from __future__ import annotations

import os
import subprocess

from harness.checkout import CHECKOUT
from harness.documents import GUIDE, examples_of
from harness.queues import running_queue
from harness.spark_jobs import prepared, tools

PATIENCE = 120  # seconds, on a busy machine
LINE = '10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 503 12 "-" "c"\n'


def test_the_commands_of_the_guide_do_what_it_says(tmp_path):
    path = f"{tools(tmp_path)}:{CHECKOUT / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "RQ_ROOT": str(tmp_path / "root")}
    env["RQ_JAVA_HOME"] = "/nowhere"
    (tmp_path / "root").mkdir()
    script = "".join(examples_of("sh", "duckdb", GUIDE))
    done = subprocess.run(
        ["timeout", str(PATIENCE), "bash", "-euc", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checked: 8 rows, no nulls in time" in done.stdout
    assert done.stdout.count('"web2",2026-11-21') == 2
    assert '"rows_in": 8' in done.stdout


def test_the_example_counts_errors_and_sends_them(tmp_path):
    script = (CHECKOUT / "examples" / "errors" / "run").read_text()
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"}
    settings = {"exec_prefix": "", "env_vars": env, "spark": {"threads": 2}}
    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "debug") as box,
        running_queue(tmp_path, script, "errors", **settings) as queue,
    ):
        msg_id = prepared(queue, {"access.log": 3 * LINE.encode()})
        assert queue.ended(msg_id, seconds=PATIENCE)["status"].startswith("done - sent")
        [made] = box.root.path.glob("queue/debug/*/**/attach/errors.csv")
        assert made.read_text().splitlines()[1].endswith(',"/a",3')

        wrong = prepared(queue, {"access.log": b"no log\n"})
        status = queue.ended(wrong, seconds=PATIENCE)["status"]
        assert status.startswith("err - 1 of 1 lines do not fit 'combined'")
