"""An idle queue glances at new/, and lists it where it may hold something."""

import asyncio
import shutil

import pytest
from harness.spool import ORIGIN, deposit

from rq.queues.concurrency import Tasks, Wakeup
from rq.queues.maintenance import deposits
from rq.queues.owner.health import Health
from rq.spool import door


@pytest.fixture
def seen(owner, monkeypatch):
    """Do things before glances at the door; return how often it was listed, and what came in."""
    monkeypatch.setattr(
        deposits, "AT_REST", 0.0
    )  # no two changes in a tick of the clock
    listed, taken = [], []

    async def aside(call, *args):
        if call.__name__ == "waiting":
            listed.append(args)
        return call(*args)

    async def glance_after(acts):
        loop = asyncio.get_running_loop()
        keeper = door.Keeper(owner.spool, ORIGIN, aside, taken.append, lambda: True)
        looks = deposits.Deposits(keeper, Health(), Wakeup(loop), Tasks(loop))
        for act in acts:
            act()
            looks.glance()
            await looks.rest()
            owner.apply()

    def see(*acts):
        asyncio.run(glance_after(acts))
        return len(listed), len(taken)

    return see


def nothing():
    """Change nothing."""


def test_a_door_at_rest_is_listed_once(seen):
    assert seen(*[nothing] * deposits.GLANCES) == (1, 0)


def test_a_door_at_rest_is_listed_again_now_and_then(seen):
    assert seen(*[nothing] * (deposits.GLANCES + 2)) == (2, 0)


def test_what_comes_in_is_seen_by_the_next_glance(seen, owner):
    def come(name):
        return lambda: deposit(owner, name)

    listed, taken = seen(nothing, nothing, come("a"), nothing, come("b"), nothing)
    assert taken == 2
    assert listed >= 3


def test_another_directory_in_its_place_is_listed(seen, owner):
    place = owner.queue.path / "new"

    def replace():
        other = place.parent / "other"
        shutil.copytree(place, other)
        shutil.rmtree(place)
        other.rename(place)

    assert seen(nothing, nothing, replace)[0] == 2


def test_a_door_that_has_just_changed_is_listed_each_time(seen, monkeypatch):
    monkeypatch.setattr(deposits, "AT_REST", 3600.0)
    assert seen(nothing, nothing, nothing) == (3, 0)
