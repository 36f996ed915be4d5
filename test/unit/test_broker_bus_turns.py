"""Nobody who sends much over the bus holds a node's loop for long."""

import asyncio
import time

from rq.broker.bus.codec import encode
from rq.broker.bus.connection import Connection, Identity
from rq.broker.cluster.messages import Kept

A, B = "aa" * 20, "bb" * 20


class _Slow:
    """Takes a millisecond for each message, and notes what happens in which order."""

    def __init__(self, seen, most):
        self.seen, self.most = seen, most
        self.is_open, self.is_done = asyncio.Event(), asyncio.Event()

    def opened(self, _connection):
        self.is_open.set()

    def came(self, _connection, message):
        until = time.monotonic() + 0.001
        while time.monotonic() < until:
            pass
        self.seen.append(message.job)
        if len(self.seen) - self.seen.count("turn") == self.most:
            self.is_done.set()

    def refused(self, _connection, _why):
        self.is_done.set()

    def ended(self, _connection):
        self.is_done.set()


async def _taken(jobs):
    """Send a message about each job at once; return in which order they were taken, and
    others on the loop had a turn."""
    loop, seen = asyncio.get_running_loop(), []
    taker, sender = _Slow(seen, len(jobs)), _Slow([], 0)
    ends = [Connection(Identity(A, b"s"), taker, connects=False)]
    ends.append(Connection(Identity(B, b"s"), sender, connects=True))
    server = await loop.create_server(lambda: ends[0], "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await loop.create_connection(lambda: ends[1], "127.0.0.1", port)
    await sender.is_open.wait()
    for job in jobs:
        ends[1].put(encode(Kept(job)))
    ends[1].flush()
    while not taker.is_done.is_set():
        seen.append("turn")
        await asyncio.sleep(0)
    for end in ends:
        end.close()
    server.close()
    await asyncio.sleep(0)
    return seen


def test_many_messages_that_come_at_once_let_others_have_their_turn():
    jobs = [f"D-00000000-{number:024d}-05a1" for number in range(200)]
    seen = asyncio.run(_taken(jobs))
    assert [each for each in seen if each != "turn"] == jobs
    first, last = seen.index(jobs[0]), seen.index(jobs[-1])
    assert seen[first:last].count("turn") > 5
