"""What is owed: in which order, and that a turn does not pay for all that waits."""

import asyncio
import gc
import sys
from types import SimpleNamespace

import pytest

from rq.errors import BadMessage
from rq.layout import Root
from rq.queues.concurrency import Wakeup
from rq.queues.delivery import owed as delivery
from rq.queues.delivery.delivery import Delivery
from rq.queues.delivery.owed import IN_DOUBT
from rq.queues.owner.health import Health
from rq.spool.outbox import Outbox, Owed, renewed

NOW = 1e9


def box(*dests, files=False):
    owed = {
        (number, 0): Owed(dest, {}, NOW + number, f"m{number}", files)
        for number, dest in enumerate(dests)
    }
    return Outbox(owed)


def all_to(owed, dest):
    """Return what is tried for a queue, in its order."""
    found = []
    while (of := owed.first(dest)) is not None:
        found.append(of)
        owed.set_aside(of)
    owed.take_up()
    return found


def test_each_queue_gets_what_it_is_owed_in_the_order_in_which_it_came_to_be():
    owed = box("b", "c", "b")
    assert list(owed.dests) == ["b", "c"]
    assert all_to(owed, "b") == [(0, 0), (2, 0)]
    assert all_to(owed, "nobody") == []


def test_what_a_queue_refused_comes_after_all_others():
    owed = box("b", "b", "b")
    owed.put_last((0, 0))
    assert all_to(owed, "b") == [(1, 0), (2, 0), (0, 0)]
    assert list(owed) == [(0, 0), (1, 0), (2, 0)]


def test_what_is_owed_anew_is_tried_and_in_doubt_last():
    owed = box("b", "b")
    owed.set_aside((0, 0))
    owed[0, 0] = renewed(owed[0, 0], NOW + 9)
    assert all_to(owed, "b") == [(1, 0), (0, 0)]
    assert list(owed) == [(1, 0), (0, 0)]
    assert owed.newest == (0, 0)


def test_what_was_delivered_leaves_no_trace():
    owed = box("b", "c", files=True)
    owed.set_aside((1, 0))
    for of in list(owed):
        del owed[of]
    assert (len(owed), list(owed.dests), owed.last_aside) == (0, [], None)
    assert owed.taker_of("m0") is None


def test_a_message_knows_who_has_still_to_get_its_attachments():
    owed = box("b", "c", files=True)
    owed[5, 0] = Owed("d", {}, NOW, "m0", True)
    del owed[0, 0]
    assert (owed.taker_of("m0"), owed.taker_of("m1")) == ("d", "c")
    assert box("b").taker_of("m0") is None


# ---- the cost


def lines(act):
    """Return how many lines of Python are run by `act`; none of what other tests have
    left, which the garbage collector may finish at any time."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def spool_of(owed, seq, clock, **more):
    """Return of a spool what a delivery asks it for."""
    return SimpleNamespace(owed=owed, clock=clock, durable_seq=seq, **more)


def delivery_of(path, spool):
    """Return the delivery of queue `a` in a root where there is no other, and its health."""
    settings, health = SimpleNamespace(root=Root(path), name="a"), Health()
    wakeup = Wakeup(asyncio.get_running_loop())
    return Delivery(spool, settings, health, wakeup), health


async def cost(path, backlog, ask):
    """Return how many lines of Python something takes while nobody takes what is
    owed."""
    owed = box(*["b"] * backlog)
    spool = spool_of(owed, backlog, lambda: NOW + backlog)
    tries, health = delivery_of(path, spool)
    tries.start()
    while not health.deliveries:
        await asyncio.sleep(0)
    owed[backlog, 0] = Owed("b", {}, NOW + backlog, "new")
    try:
        return lines(lambda: ask(spool, tries))
    finally:
        tries.cancel()


@pytest.mark.parametrize(
    "ask",
    [
        lambda spool, tries: tries.start(),
        lambda spool, tries: tries._next("b", ()),
        lambda spool, tries: delivery.doubtful(spool),
        lambda spool, tries: spool.owed.taker_of("m1"),
    ],
    ids=["a turn", "the next delivery", "how many are in doubt", "a removal"],
)
def test_what_is_asked_often_costs_the_same_however_much_is_owed(tmp_path, ask):
    few, many = (asyncio.run(cost(tmp_path, one, ask)) for one in (200, 2000))
    assert few == many


def test_what_is_in_doubt_is_tried_no_more_until_the_clock_is_set_back(tmp_path):
    async def story():
        clock = [NOW + IN_DOUBT + 1.5]  # 0 and 1 are in doubt, 2 is not
        owed = box("b", "b", "b")
        spool = spool_of(owed, 9, lambda: clock[0])
        tries, _ = delivery_of(tmp_path, spool)
        assert delivery.doubtful(spool) == 2
        assert tries._next("b", ()) == [(2, 0)]
        clock[0] = NOW
        tries.start()
        tries.cancel()
        return all_to(owed, "b")

    assert asyncio.run(story()) == [(2, 0), (0, 0), (1, 0)]


def test_one_that_cannot_be_read_is_told_and_tried_after_the_others(tmp_path):
    def settle(msg_id):
        if msg_id == "m0":
            raise BadMessage("no JSON")

    async def story():
        owed = box("b", "b", files=True)
        tries, health = delivery_of(
            tmp_path, spool_of(owed, 9, lambda: NOW, settle=settle)
        )
        tries.start()
        while not health.deliveries:
            await asyncio.sleep(0)
        tries.cancel()
        assert health.deliveries["b"] == "there is no queue b"
        return all_to(owed, "b")

    assert asyncio.run(story()) == [(1, 0), (0, 0)]
