"""A node's tries to reach another one do not outlast that one's absence."""

import asyncio
import random

from harness.ports import free_port

from rq.broker.bus import bus as bus_module
from rq.broker.bus import connection as connection_module
from rq.broker.bus.bus import Bus
from rq.broker.bus.connection import Connection, Identity
from rq.broker.cluster.gossip import Address
from rq.broker.cluster.members import Members
from rq.proc import listening

A, B = "aa" * 20, "bb" * 20
SECRET = b"secret"


class _Deaf:
    """Hears of nothing."""

    def came(self, *_):
        pass

    greeted = linked = linked_from = opened = refused = ended = came


async def _tries_of_a_node_that_is_told_of_a_return():
    """Let a node try to reach one that takes its connections and says nothing, until that
    one comes by itself; return how many connections it has made then."""
    loop, tries = asyncio.get_running_loop(), []
    second = asyncio.Event()

    def take(_reader, writer):
        tries.append(writer)
        if len(tries) > 1:
            second.set()

    silent = await asyncio.start_server(take, "127.0.0.1", 0)
    place = Address("127.0.0.1", 7711, silent.sockets[0].getsockname()[1])
    members = Members(B, random.Random(1), Address("127.0.0.1", 7712, 0))
    members.load([(A, place)], loop.time())
    bus = Bus(members, SECRET, loop, loop.time, _Deaf())
    port = free_port()
    bus.begin(listening.bind("127.0.0.1", port, "a test"))
    while not tries:
        await asyncio.sleep(0.01)
    returned = Connection(Identity(A, SECRET), _Deaf(), connects=True)
    await loop.create_connection(lambda: returned, "127.0.0.1", port)
    try:
        await asyncio.wait_for(second.wait(), 20)
    finally:
        returned.close()
        bus.close()
        silent.close()
        for writer in tries:
            writer.close()
    return len(tries)


def test_a_try_that_hangs_is_begun_again_when_the_other_node_comes(monkeypatch):
    """Else the other one hears what it has missed when it holds its jobs no longer."""
    monkeypatch.setattr(connection_module, "PATIENCE", 600.0)
    monkeypatch.setattr(bus_module, "_LONG_TRY", 0.0)
    assert asyncio.run(_tries_of_a_node_that_is_told_of_a_return()) >= 2
