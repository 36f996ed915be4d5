"""Leases for clients of the broker that hang up, or wait at several queues at once."""

import asyncio

import pytest

from rq.broker.bridge.holdings import Holdings
from rq.broker.bridge.leases import Leases, Presence, Wanted
from rq.broker.bridge.queues import Asker, Queues
from rq.config import files
from rq.layout import Root
from rq.rpc.lines.owners import ClientGone
from rq.work.holding import Result

ANNA = Asker("anna", "test")
SECONDS = 30  # that a test may take which would never end


class Owners:
    """Queues `p` and `r`, of which what comes at `r` is there already as the wait ends."""

    def __init__(self, first):
        self._first = first  # what `p` has
        self.given_back = []

    async def lease(self, *_):
        return []

    def learn(self, queue):
        """Know a queue."""

    async def wait(self, queue, asker, count, seconds, until, over):
        if queue == "p" and self._first:
            return [grant("p")]
        await over.wait()
        if queue == "p":
            raise ClientGone
        return [grant("r")]

    async def say(self, queue, asker, word, request):
        if word == "release":
            self.given_back += request["tokens"]
        return [Result(ok=True) for _ in request["tokens"]]


def grant(queue):
    msg_id = "20260102.0304.05.006.7"
    return {"token": queue, "msg_id": msg_id, "seconds": 30.0, "message": {}}


def run(act):
    return asyncio.run(asyncio.wait_for(act, SECONDS))


def test_what_came_at_another_queue_as_the_wait_ended_is_given_back_at_once():
    async def take():
        owners = Owners(first=True)
        leases = Leases(owners, Holdings(owners))
        wanted = Wanted(queues=["p", "r"], waits=True)
        taken = await leases.take(ANNA, wanted, Presence(lambda: True))
        return [each.queue for each in taken], owners.given_back

    assert run(take()) == (["p"], ["r"])


def test_what_came_as_the_client_hung_up_is_given_back_at_once():
    async def take():
        owners = Owners(first=False)
        leases = Leases(owners, Holdings(owners))
        client = Presence(lambda: True)
        asyncio.get_running_loop().call_soon(client.ended.set)
        with pytest.raises(ClientGone):
            await leases.take(ANNA, Wanted(queues=["p", "r"], waits=True), client)
        return owners.given_back

    assert run(take()) == ["r"]


def test_a_client_that_hung_up_waits_for_no_owner_that_is_down(tmp_path):
    root = Root(tmp_path)
    files.make_root(root)
    files.make_queue(root.queue("p"), {"name": "p"}, {})

    async def wait():
        queues, over = Queues(root), asyncio.Event()
        over.set()
        with pytest.raises(ClientGone):
            await queues.wait("p", ANNA, 1, None, None, over)
        queues.close()

    run(wait())
