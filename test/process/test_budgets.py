"""What the owner of a queue asks of the kernel has a budget, which no change may exceed.

Counted, not timed: a busy machine changes nothing of it. Whoever saves calls lowers the
budget with it; whoever needs more says in this table what for.
"""

import os
import time

import pytest
from harness.queues import running_queue
from harness.supervisor import daemon_on
from harness.system_calls import counted, wakeups_a_minute
from harness.waiting import wait_until

from rq.rpc import client

MESSAGES = 200
SCRIPT = "#!/bin/sh\necho done >&3\n"

# System calls of the owner for a message, over many of them.
CALLS = {
    # Asked on a connection that stays, one after the other; its folder is made.
    "accept": 13.5,
    # From que to done, by a queue of one slot: each has its turns for itself.
    "run a process": 87.5,
}
# Wake-ups a minute.
WAKEUPS = {
    "idle queue": 60,
    "idle root": 220,  # supervisor, fork server, scandir, timers, and one queue
}


def within(row, calls):
    """Compare calls with the budget of a row; tell which they were when they exceed it."""
    each = sum(calls.values()) / MESSAGES
    which = {name: round(n / MESSAGES, 2) for name, n in calls.most_common()}
    assert each <= CALLS[row], f"{row}: {each:.1f} calls for a message: {which}"


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path / "root", SCRIPT, num_workers=1) as queue:
        queue.run()  # what the first one makes, others find
        yield queue


def pause(queue):
    flag = queue.root.pause(queue.name)
    flag.touch()
    queue.ask("wake")
    # Until then the file is read again at each look: it may have changed.
    wait_until(lambda: time.time() - flag.stat().st_ctime > 1.1)


def send(queue):
    with client.Connection(queue.dir.socket) as line:
        for _ in range(MESSAGES):
            line.ask("create_message", {"dest": queue.name, "param1": "x"})


def drain(queue):
    queue.root.pause(queue.name).unlink()
    queue.ask("wake")
    places = [queue.dir.path / state for state in ("que", "run")]
    wait_until(lambda: not any(map(os.listdir, places)), 120)


@pytest.mark.slow
def test_a_message_costs_no_more_calls_than_its_budget(queue, tmp_path):
    pause(queue)
    accepting = counted(queue.pid, tmp_path, lambda: send(queue))
    queue.ok("check")  # all folders are made
    running = counted(queue.pid, tmp_path, lambda: drain(queue))
    assert queue.ask("num_messages")["done"] == MESSAGES + 1
    within("accept", accepting)
    within("run a process", running)


def idle_rate(pids):
    wakeups_a_minute(pids, 5)  # the last of what their start has left to do
    return wakeups_a_minute(pids, 15)


@pytest.mark.slow
def test_a_queue_without_work_hardly_wakes(queue):
    rate = idle_rate([queue.pid])
    assert rate <= WAKEUPS["idle queue"]


@pytest.mark.slow
def test_a_root_without_work_hardly_wakes(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.start()
        daemon.create("q")
        daemon.until_up("q")
        daemon.until_up("timers")
        rate = idle_rate(daemon.processes())
        assert rate <= WAKEUPS["idle root"]
