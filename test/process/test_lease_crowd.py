"""Many who wait for leases at once: they keep nobody out, and are all served."""

import contextlib
import json
import socket

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.rpc import client, wire

pytestmark = pytest.mark.process
CROWD = 1050  # more than the connections that others may have


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path, num_workers=0, pull={"max": 100_000}) as queue:
        yield queue


def waiting(queue, stack, number):
    """Return a connection whose asker waits for a lease."""
    line = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    line.settimeout(30)
    line.connect(str(queue.dir.socket))
    asked = {"wait": 60, "label": str(number)}
    line.sendall(wire.request("lease", json.dumps(asked).encode()))
    return line


@pytest.mark.slow
def test_a_crowd_that_waits_keeps_nobody_out_and_is_served(queue):
    with contextlib.ExitStack() as stack:
        lines = [waiting(queue, stack, number) for number in range(CROWD)]
        wait_until(lambda: queue.ok("detail")["elsewhere"]["workers"] == CROWD)
        with client.Connection(queue.dir.socket) as sender:
            for _ in range(CROWD):
                sender.ask("create_message", {"dest": "t"})
        replies = [json.loads(next(read(line))) for line in lines]
    assert [len(reply[1]["leases"]) for reply in replies] == [1] * CROWD


def test_those_who_hang_up_while_they_wait_are_forgotten(queue):
    with contextlib.ExitStack() as stack:
        for number in range(20):
            waiting(queue, stack, number)
        wait_until(lambda: len(queue.ok("leases")["workers"]) == 20)
    queue.ok("create_message", {"dest": "t"})
    [lease] = queue.ok("lease", {"wait": 5})["leases"]
    assert lease["attempt"] == 1
    queue.check()


def read(line):
    frames = wire.Frames(limit=wire.REPLY_LIMIT)
    while True:
        yield from frames.feed(line.recv(65536))
