"""A start of a queue that coalesces reads no message whose key its index tells."""

import os
import shutil
import signal

import pytest
from harness.queues import RunningQueue, kept
from harness.waiting import wait_until

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="no strace")


def read_at_start(queue, trace):
    """Start a queue; return how many files `msg` it opens."""
    words = ("strace", "-qq", "-f", "-e", "trace=openat,openat2,open", "-o", str(trace))
    queue.start(words)
    return sum(
        '"msg"' in line or '/msg"' in line for line in trace.read_text().splitlines()
    )


def queued(tmp_path, number):
    """Return a stopped queue in which so many messages wait."""
    queue = RunningQueue(tmp_path, "t", "obey", coalesce_params=[1], num_workers=1)
    flag = queue.root.pause("t")
    with kept(queue):
        flag.touch()
        queue.ask("wake")
        for at in range(number):
            queue.send(param1="echo done >&3", param2=f"{at}")
    return queue


@pytest.mark.parametrize("number", [3, 30])
def test_a_start_reads_no_message_that_its_index_knows(tmp_path, number):
    queue = queued(tmp_path, number)
    try:
        assert read_at_start(queue, tmp_path / "trace") == 0
        queue.root.pause("t").unlink()
        queue.ask("wake")
        wait_until(
            lambda: queue.ok("detail") and queue.ask("num_messages")["done"] == number
        )
        waited = sum("duplicate" in row["status"] for row in rows(queue, "done"))
        assert waited == number - 1, "they are still known as equal"
        os.kill(int(queue.dir.pid.read_text()), signal.SIGTERM)
        assert queue.process.wait(20) == 0
    finally:
        queue.kill()


def rows(queue, state):
    return queue.ok("list", {"state": state, "limit": 100})


def test_other_params_are_compared_after_a_change(tmp_path):
    queue = queued(tmp_path, 3)
    queue.configure(coalesce_params=[2])
    with kept(queue):
        queue.root.pause("t").unlink()
        queue.ask("wake")
        wait_until(lambda: queue.ask("num_messages")["done"] == 3)
        assert not any("duplicate" in row["status"] for row in rows(queue, "done"))
