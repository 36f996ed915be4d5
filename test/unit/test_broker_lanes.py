"""Messages of a link stay in their order, whatever the disk takes for their bodies."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from rq.broker.bus import lanes, outbox
from rq.broker.bus.bus import Bus, Link
from rq.broker.bus.cluster import Cluster
from rq.broker.bus.connection import Connection, Identity
from rq.broker.bus.lanes import Lanes
from rq.broker.cluster.gossip import Address
from rq.broker.cluster.members import Members
from rq.broker.cluster.messages import Copy, Enqueue, Letter, Mark, Replicate

A, B = "aa" * 20, "bb" * 20
LARGE = Replicate(Copy("large", b"q", bytes(1000), 1, 2, 3, 4, 5, 6, 7, ()), True)
ENQUEUE = Enqueue("large", 0)


class Disk:
    """Takes a body when a test lets it."""

    def __init__(self):
        self.went = []
        self.waiting = []
        loop = asyncio.get_running_loop()
        waits = lambda message: isinstance(message, Replicate)  # noqa: E731
        go_on = lambda node, message: self.went.append((node, message))  # noqa: E731
        self.lanes = Lanes(loop, waits, self.change, go_on)

    async def change(self, message):
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]
        return message

    async def let_go(self, error=None):
        """Let what waits be done, or fail."""
        await turns()
        future = self.waiting.pop(0)
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        await turns()


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


def played(story):
    async def play():
        await story(Disk())

    asyncio.run(play())


def test_what_comes_after_a_large_copy_goes_on_after_it():
    async def story(disk):
        for node, message in (("a", LARGE), ("a", ENQUEUE), ("b", ENQUEUE)):
            disk.lanes.put(node, message)
        assert disk.went == [("b", ENQUEUE)]
        await disk.let_go()
        assert disk.went[1:] == [("a", LARGE), ("a", ENQUEUE)]
        disk.lanes.put("a", ENQUEUE)
        assert len(disk.went) == 4

    played(story)


def test_a_copy_that_fails_is_lost_and_the_others_go_on():
    async def story(disk):
        for message in (LARGE, ENQUEUE, LARGE, ENQUEUE):
            disk.lanes.put("a", message)
        await disk.let_go(OSError(28, "No space left on device"))
        assert disk.went == [("a", ENQUEUE)]
        await disk.let_go()
        assert disk.went[1:] == [("a", LARGE), ("a", ENQUEUE)]

    played(story)


@pytest.mark.parametrize("message", [LARGE, ENQUEUE])
def test_what_waits_has_bounds(message, monkeypatch):
    monkeypatch.setattr(lanes, "MOST_BYTES", 3500)
    monkeypatch.setattr(lanes, "MOST_MESSAGES", 10)

    async def story(disk):
        disk.lanes.put("a", LARGE)
        for _ in range(20):
            disk.lanes.put("a", message)
        kept = 3 if message is LARGE else 9
        assert disk.lanes.lost == 20 - kept
        for _ in range(1 + (message is LARGE) * kept):
            await disk.let_go()
        assert len(disk.went) == 1 + kept
        disk.lanes.put("a", ENQUEUE)
        assert len(disk.went) == 2 + kept

    played(story)


def test_whatever_fails_later_messages_go_on():
    async def story(disk):
        disk.lanes.put("a", LARGE)
        disk.lanes.put("a", ENQUEUE)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await disk.let_go(ValueError("a mistake"))
        (done,) = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done, ValueError)
        disk.lanes.put("a", ENQUEUE)
        assert disk.went == [("a", ENQUEUE)]

    played(story)


def test_no_mark_passes_a_message_that_was_lost_before_it(monkeypatch):
    """A mark says that all before it has come: then jobs are handed out again."""
    monkeypatch.setattr(lanes, "MOST_MESSAGES", 3)

    async def story(disk):
        for message in (LARGE, ENQUEUE, LARGE, ENQUEUE):
            disk.lanes.put("a", message)
        await disk.let_go()
        disk.lanes.put("a", Mark())  # the lane has room again
        await disk.let_go()
        disk.lanes.put("a", Mark())  # and is empty
        await turns()
        went = [("a", each) for each in (LARGE, ENQUEUE, LARGE)]
        assert (disk.went, disk.lanes.lost) == (went, 1)
        disk.lanes.linked("a")
        disk.lanes.put("a", Mark())
        assert disk.went[-1] == ("a", Mark())

    played(story)


def test_no_mark_passes_a_copy_that_the_disk_has_not_taken():
    async def story(disk):
        disk.lanes.put("a", LARGE)
        disk.lanes.put("a", Mark())
        await disk.let_go(OSError(28, "No space left on device"))
        assert disk.went == []
        disk.lanes.put("b", Mark())
        assert disk.went == [("b", Mark())]

    played(story)


class _Deaf:
    """Hears of nothing."""

    def came(self, *_):
        pass

    greeted = linked = linked_from = opened = refused = ended = came


def test_no_mark_follows_what_a_full_outbox_has_lost():
    members = Members(B, random.Random(1), Address("127.0.0.1", 7712, 0))
    bus, link = Bus(members, b"s", None, lambda: 0.0, _Deaf()), Link()
    connection = link.connection = Connection(Identity(B, b"s"), _Deaf(), connects=True)
    connection.peer, bus.links[A] = A, link
    bus.send_all([Letter(A, Mark())])
    bus.send(A, Mark())
    assert len(connection.outbox) == 2
    connection.put(bytes(outbox.MOST_BYTES + 1))
    bus.send_all([Letter(A, Mark()), Letter(A, ENQUEUE)])
    bus.send(A, Mark())
    bus.send(A, ENQUEUE)
    assert len(connection.outbox) == 4


@pytest.mark.parametrize("way", ["linked", "linked_from"])
def test_marks_pass_again_over_a_new_link(way, monkeypatch):
    monkeypatch.setattr(lanes, "MOST_MESSAGES", 1)

    async def story(disk):
        for _ in range(2):
            disk.lanes.put("a", LARGE)
        await disk.let_go()
        cluster = object.__new__(Cluster)  # of which nothing else is asked here
        deaf = SimpleNamespace(linked=lambda *_: None)
        cluster._node = SimpleNamespace(
            replication=deaf, desk=SimpleNamespace(holding=deaf)
        )
        cluster._store = SimpleNamespace(clock=SimpleNamespace(now=lambda: 0.0))
        cluster._soon = lambda: None
        cluster._outgoing = cluster._incoming = disk.lanes
        getattr(cluster, way)("a")
        disk.lanes.put("a", Mark())
        assert disk.went == [("a", LARGE), ("a", Mark())]

    played(story)
