"""A round of the history that its queue does not wait for, and what a dead driver leaves."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT
from harness.journal_files import START, JournalFiles, life
from harness.processes import end, lives
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

from rq.layout import Root
from rq.spark import scratch

GRACE = 600  # seconds: a stop that waits for the round is never over in time
PATIENCE = 300.0  # seconds for what starts a JVM, on a busy machine
SCRIPT = f"""#!/bin/sh
echo $$ >> "$RQ_ROOT/pids"
PYTHONPATH={CHECKOUT} exec {sys.executable} -m rq.spark.history_script
"""
ENTER = """
import signal, sys
from pathlib import Path
from rq.spark import scratch

own = scratch.enter(Path(sys.argv[1]))
(own / "blockmgr-1").mkdir()
print(own, flush=True)
signal.pause()
"""


@pytest.fixture
def queue(tmp_path, spark_env):
    """Give a queue of rounds, with events to read; its stop has much patience."""
    root = Root(tmp_path)
    journal = JournalFiles(root, "a", "aa")
    journal.seal(e for n in range(500) for e in life(f"m{n}", START + n * 10**8))
    (tmp_path / "queue/a/config.json").write_text("{}")
    root.config_dir.mkdir()
    root.config.write_text(json.dumps({**SETTINGS, "grace": GRACE}))
    settings = {
        "env_vars": {"JAVA_HOME": spark_env["RQ_JAVA_HOME"]},
        "spark": {
            "master": spark_env["RQ_SPARK_MASTER"],
            "conf": json.loads(spark_env["RQ_SPARK_CONF"]),
        },
    }
    with running_queue(tmp_path, SCRIPT, "spark-history", **settings) as made:
        yield made


def test_a_stop_does_not_wait_for_a_round_and_no_attempt_counts(queue):
    msg_id = queue.send()
    local = queue.root.spark / "local"
    wait_until(lambda: any(local.glob("*/blockmgr-*")), PATIENCE)
    queue.process.terminate()
    queue.process.wait(PATIENCE)
    [pid] = (queue.root.path / "pids").read_text().split()
    assert not lives(int(pid))
    assert list(local.glob("*/*")) == []
    queue.root.pause(queue.name).touch()
    queue.start()
    found = queue.get(msg_id)
    assert (found["state"], found["count"], found["attempt"]) == ("que", 0, 1), found


def test_what_a_dead_driver_leaves_goes_with_the_next_start_and_no_living_ones_does(
    tmp_path,
):
    drivers = [enter(tmp_path) for _ in range(2)]
    try:
        (dead, dead_place), (_, living_place) = drivers
        dead.kill()
        dead.wait()
        stranger = tmp_path / "somebody's"
        stranger.mkdir()
        own = scratch.enter(tmp_path)
        assert scratch.enter(tmp_path) == own  # a second session of this process
        assert not dead_place.exists()
        assert (living_place / "blockmgr-1").is_dir()
        assert stranger.is_dir()
        scratch.leave(tmp_path)
        assert not own.exists()
    finally:
        for process, _ in drivers:
            end(process.pid)
            process.wait()
            process.stdout.close()


def enter(place):
    """Start a process that has a scratch directory; return it and the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENTER, place],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    return process, place / process.stdout.readline().strip()
