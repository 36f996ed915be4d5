"""Messages of a link stay in their order, whatever the disk takes for their bodies."""

import asyncio

import pytest

from rq.broker.bus import lanes
from rq.broker.bus.lanes import Lanes
from rq.broker.cluster.messages import Copy, Enqueue, Mark, Replicate

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


def test_no_mark_passes_a_copy_that_the_disk_has_not_taken():
    async def story(disk):
        disk.lanes.put("a", LARGE)
        disk.lanes.put("a", Mark())
        await disk.let_go(OSError(28, "No space left on device"))
        assert disk.went == []
        disk.lanes.put("b", Mark())
        assert disk.went == [("b", Mark())]

    played(story)
