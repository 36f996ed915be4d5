"""What becomes of a message of RQ whose answer has not left the broker when its client is
ended. A process gives no moment to a test between the two; here the test is the turn."""

import asyncio
import socket
from random import Random

import pytest
from harness.queues import running_queue
from harness.waiting import wait_until

from rq.access.roles import Principal, Role
from rq.broker.bridge.bridge import Bridge
from rq.broker.clients.connection import Connection
from rq.broker.clients.scheduler import Scheduler
from rq.broker.desks.node import Node

pytestmark = pytest.mark.process
LEASED = {"num_workers": 0, "pull": {"seconds": 30}}


class Turn:
    """A turn of a broker in which answers are ready, and do not leave."""

    def __init__(self, bridge):
        self.bridge, self.is_ready = bridge, asyncio.Event()

    def touched(self, _connection):
        self.is_ready.set()

    def lost(self, connection):
        self.bridge.lost(connection)


async def connected(turn):
    """Return a client that the broker may answer, and the client's own end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    client = Connection(1, ours, turn)
    client.principal = Principal(name="client", role=Role.ADMIN)
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: client, ours)
    return client, theirs


def getjob(bridge, client):
    bridge.obey(client, b"GETJOB", [b"FROM", b"rq:p"], lambda _: 0)


async def ended_before_its_answer_leaves(queue, is_given_back):
    """Let a client get a message, and be ended; return when that is given back."""
    bridge = Bridge(queue.root, Node("ab" * 20, Random(1)))
    turn = Turn(bridge)
    client, theirs = await connected(turn)
    with theirs:
        getjob(bridge, client)
        await asyncio.wait_for(turn.is_ready.wait(), 20)
        assert len(queue.ok("leases")["leases"]) == 1
        client.kill()
        await asyncio.to_thread(wait_until, is_given_back)
    bridge.close()


async def hung_up_when_its_lease_has_begun(queue, is_given_back):
    """Let a client hang up when its message is confirmed and its answer is not written;
    return when that message is given back."""
    bridge = Bridge(queue.root, Node("ab" * 20, Random(1)))
    turn = Turn(bridge)
    client, theirs = await connected(turn)
    begin, has_begun = bridge._holdings.begin, asyncio.Event()

    async def begun(*args):
        taken = await begin(*args)
        theirs.close()
        has_begun.set()
        return taken

    bridge._holdings.begin = begun
    getjob(bridge, client)
    await asyncio.wait_for(has_begun.wait(), 20)
    await asyncio.to_thread(wait_until, is_given_back)
    assert not turn.is_ready.is_set()
    bridge.close()


@pytest.mark.parametrize(
    "story", [ended_before_its_answer_leaves, hung_up_when_its_lease_has_begun]
)
def test_what_is_in_an_answer_that_has_not_left_is_given_back(tmp_path, story):
    with running_queue(tmp_path, name="p", **LEASED) as queue:
        msg_id = queue.send()

        def is_given_back():
            return queue.get(msg_id)["state"] == "que"

        asyncio.run(story(queue, is_given_back))
        message = queue.get(msg_id)
        assert (message["result"]["cause"], message["count"]) == ("released", 0)


async def answered_after_its_end():
    """Let a client hang up while its answer is being made; return whether it was written,
    and whether the client is ended."""
    turn = Turn(Bridge(None, Node("ab" * 20, Random(1))))
    client, theirs = await connected(turn)

    async def answer():
        theirs.close()
        return 7

    scheduler = Scheduler(asyncio.get_running_loop(), {1: client})
    scheduler.answer_later(client, answer())
    await asyncio.sleep(0)  # the answer is made, and the end is not read
    return turn.is_ready.is_set(), client.transport.is_closing()


def test_a_slow_answer_is_not_written_to_a_client_that_has_hung_up():
    assert asyncio.run(answered_after_its_end()) == (False, True)
