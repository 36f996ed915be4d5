"""What the owner of a queue asks of the kernel has a budget, which no change may exceed.

Counted, not timed: a busy machine changes nothing of it. Whoever saves calls lowers the
budget with it; whoever needs more says in this table what for.
"""

import os
import re
import time
from pathlib import Path

import pytest
from harness.queues import RunningQueue, kept
from harness.supervisor import daemon_on
from harness.system_calls import counted, wakeups_a_minute
from harness.waiting import wait_until

from rq.rpc import client

MESSAGES = 200
# One that is told a fifo waits for it.
SCRIPT = """#!/bin/sh
[ -p "$RQ_PARAM1" ] && read -r _ < "$RQ_PARAM1"
echo done >&3
"""

# System calls of the owner for a message, over many of them.
CALLS = {
    # Asked on a connection that stays, one after the other; its folder is made.
    "accept": 12.3,
    # From que to done, by a queue of one slot: each has its turns for itself.
    "run a process": 69,  # 66.2, and two more closes where their numbers lie apart
}
# Wake-ups a minute.
WAKEUPS = {
    "idle queue": 24,
    "idle root": 130,  # supervisor, fork server, scandir, timers, and one queue
}
MIB = 1024 * 1024
# Bytes that only this process has.
MEMORY = {
    "idle queue": 13.5 * MIB,  # 12.4: pages of the fork server that it has written into
}


def within(row, calls):
    """Compare calls with the budget of a row; tell which they were when they exceed it."""
    each = sum(calls.values()) / MESSAGES
    which = {name: round(n / MESSAGES, 2) for name, n in calls.most_common()}
    assert each <= CALLS[row], f"{row}: {each:.1f} calls for a message: {which}"


@pytest.fixture
def queue(tmp_path):
    queue = RunningQueue(tmp_path / "root", "t", SCRIPT, num_workers=1)
    # Looks at a path that hold for a while: how many depends on how fast messages go.
    queue.env["TEST_LOOK"] = "3600"
    with kept(queue):
        queue.run()  # what the first one makes, others find
        yield queue


def send(queue):
    with client.Connection(queue.dir.socket) as line:
        for _ in range(MESSAGES):
            message = {"dest": queue.name, "param1": "x"}
            assert line.ask("create_message", message)[0] == "ok"


def drain(queue, fifo):
    with fifo.open("w"):
        pass
    places = [queue.dir.path / state for state in ("que", "run")]
    wait_until(lambda: not any(map(os.listdir, places)), 120)


@pytest.mark.slow
def test_a_message_costs_no_more_calls_than_its_budget(queue, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    queue.until(queue.send(param1=str(fifo)), "run")  # no other starts meanwhile
    config = queue.root.config_dir
    wait_until(lambda: time.time() - config.stat().st_ctime > 1.1)  # it is at rest
    accepting = counted(queue.pid, tmp_path, lambda: send(queue))
    queue.ok("check")  # all folders are made
    running = counted(queue.pid, tmp_path, lambda: drain(queue, fifo))
    assert queue.ask("num_messages")["done"] == MESSAGES + 2
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
        assert own_memory(daemon.root.queue("q")) <= MEMORY["idle queue"]


def own_memory(queue):
    """Return how many bytes of memory the process of a queue shares with no other."""
    pid = queue.pid.read_text().strip()
    rows = re.findall(
        r"^Private_(?:Clean|Dirty): *(\d+) kB",
        Path(f"/proc/{pid}/smaps_rollup").read_text(),
        re.MULTILINE,
    )
    return 1024 * sum(map(int, rows))
