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
from rq.broker.connection import Connection
from rq.broker.node import Node

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


async def ended_before_its_answer_leaves(queue, is_given_back):
    """Let a client get a message, and be ended; return when that is given back."""
    bridge = Bridge(queue.root, Node("ab" * 20, Random(1)))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    turn = Turn(bridge)
    client = Connection(1, ours, turn)
    client.principal = Principal(name="somebody", role=Role.ADMIN)
    with theirs:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: client, ours)
        bridge.obey(client, b"GETJOB", [b"FROM", b"rq:p"], lambda _: 0)
        await asyncio.wait_for(turn.is_ready.wait(), 20)
        assert len(queue.ok("leases")["leases"]) == 1
        client.kill()
        await asyncio.to_thread(wait_until, is_given_back)
    bridge.close()


def test_what_is_in_an_answer_that_has_not_left_is_given_back(tmp_path):
    with running_queue(tmp_path, name="p", **LEASED) as queue:
        msg_id = queue.send()

        def is_given_back():
            return queue.get(msg_id)["state"] == "que"

        asyncio.run(ended_before_its_answer_leaves(queue, is_given_back))
        message = queue.get(msg_id)
        assert (message["result"]["cause"], message["count"]) == ("released", 0)
