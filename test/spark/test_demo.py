"""`rq up --demo`: the chart, `rq ls --count` and the folders tell the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from harness.ports import free_port
from harness.waiting import wait_until

from rq import published
from rq.cli.spark_demo import QUEUES
from rq.layout import Root
from rq.names import is_msg_id
from rq.rpc import client

MESSAGES = 400


@pytest.fixture
def rq(tmp_path, spark_env):
    """Give a function that runs rq on a root of its own; nothing of it is left."""
    root = Root(tmp_path / "r")
    root.config_dir.mkdir(parents=True)
    settings = {"host": "127.0.0.1", "port": free_port(), "grace": 1}
    root.config.write_text(json.dumps(settings))

    def run(*words):
        command = [sys.executable, "-m", "rq.cli", "--root", str(root.path), *words]
        return subprocess.run(
            command,
            env={**os.environ, **spark_env, "RQ_ROOT": str(root.path)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    run.root = root
    try:
        yield run
    finally:
        run("down")


@pytest.mark.slow
def test_the_chart_equals_ls_count_and_the_folders_and_a_message_renews_it(rq):
    done = rq("up", "--no-samples", "--demo", str(MESSAGES))
    assert done.returncode == 0, done.stderr
    assert "the history and `rq ls --count` count the same" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("/history?range=day")
    # What Spark says of its own start is for the log.
    noise = "Setting default log level"
    assert noise in (rq.root.log / "spark.log").read_text()
    assert noise not in done.stdout + done.stderr
    assert "starting Spark\n" in done.stderr

    index = published.Published(published.place(rq.root)).index()
    counted = json.loads(rq("ls", "--count", "--json").stdout)
    for queue in QUEUES:
        in_folders = folders(rq.root, queue)
        shown = {state: n for state, n in index["counts"][queue].items() if n}
        assert shown == {state: len(found) for state, found in in_folders.items()}
        assert {state: n for state, n in counted[queue].items() if n} == shown
        assert_figures(rq.root, index, queue, in_folders)
    assert sum(counted[queue]["done"] for queue in QUEUES) == MESSAGES - MESSAGES // 25

    assert_a_message_makes_a_round(rq.root)


def folders(root, queue):
    """Return what the files `status` of a queue say, by the directory of each message."""
    found = {}
    for path in root.queue(queue).path.glob("*/**/status"):
        if is_msg_id(path.parent.name):
            state = path.relative_to(root.queue(queue).path).parts[0]
            found.setdefault(state, []).append(json.loads(path.read_text()))
    return found


def assert_figures(root, index, queue, in_folders):
    """What ended, why, and how often it was tried again is what the folders say."""
    parts = [
        part
        for day in published.Published(published.place(root)).days(index["days"])
        for part in day["parts"]
        if (part["queue"], part["hour"]) == (queue, None)
    ]
    sums, ended = Counter(), Counter()
    for part in parts:
        sums.update({name: part[name] for name in published.COUNTS})
        ended.update(part["causes"])
    statuses = [one for those in in_folders.values() for one in those]
    causes = Counter(one["cause"] for one in statuses)
    again = sum(one.get("count", 0) for one in statuses)
    assert sums["accepted"] == len(statuses)
    assert sums["started"] == len(statuses) + again
    assert sums["retries"] == ended.pop("resend") == again > 0
    assert ended == causes
    # Folders tell of the last attempt alone, the figures of all: most are last ones.
    longest = max(one["run_us"] for one in statuses)
    assert again < len(statuses)
    assert 0 < max(part["run"][0] for part in parts) <= longest


def assert_a_message_makes_a_round(root):
    """The queue spark-history takes in what came since, and tells how far it is."""
    before = published.Published(published.place(root)).index()
    socket = root.queue("spark-history").socket
    sent = client.ask(socket, "create_message", {"dest": "spark-history"})
    msg_id = sent[1].rpartition("/")[2]
    told = set()

    def ended():
        found = client.ask(socket, "get_message", {"msg_id": msg_id})[1]
        told.add(found["status"])
        return found if found["state"] in ("done", "err") else None

    found = wait_until(ended, 400)
    assert found["state"] == "done", found["status"]
    assert "new events" in found["status"]
    assert any("batch" in text or "stages" in text for text in told), told
    after = published.Published(published.place(root)).index()
    assert after["events"] > before["events"]
    assert after["counts"]["spark-history"]["run"] == 1
