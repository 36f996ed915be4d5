"""A recount finds what others have done to folders of ended messages, and nothing else,
whatever the owner does meanwhile."""

import asyncio
import random
import shutil

import pytest
from harness.spool import Owner, a_message, check_live

from rq.spool import recount
from rq.words.states import FINAL, Event, Role, State

ENDS = (Event.FINISH, Event.FINISH, Event.RELAY, Event.FAIL)


class Busy:
    """An owner that goes on with its messages between the pieces of a recount."""

    def __init__(self, owner, seed):
        self.owner = owner
        self.rnd = random.Random(seed)
        self.ids = []

    def new(self):
        """Let a message of some minute end somehow; its folder follows or does not yet."""
        minute = self.rnd.randrange(8)
        msg_id = f"20270115.08{minute:02}.00.000.{len(self.ids)}"
        self.owner.spool.submit(a_message(msg_id))
        self.ids.append(msg_id)
        self.owner.spool.claim(msg_id, 0)
        self.owner.end(msg_id, self.rnd.choice(ENDS))

    def change(self):
        """Let one that has ended go, or be acknowledged, or run once more."""
        spool = self.owner.spool
        state, msg_id = self.rnd.choice(self.ended())
        if state in (State.ERR, State.DISMISSED) and self.rnd.random() < 0.7:
            word = {State.ERR: Event.DISMISS, State.DISMISSED: Event.REOPEN}[state]
            spool.fire(msg_id, word, Role.CREATOR)
        else:
            spool.fire(msg_id, Event.DISCARD, Role.CREATOR)

    def ended(self):
        spool = self.owner.spool
        spool.commit()
        found = ((spool.find(msg_id), msg_id) for msg_id in self.ids)
        return [pair for pair in found if pair[0] in FINAL]

    def settle(self):
        self.owner.spool.commit()
        self.owner.spool.settle_some(0.0005)

    async def aside(self, call, *args):
        """As the thread of a recount: the owner has turns before and after it."""
        self.goes_on()
        result = call(*args)
        self.goes_on()
        return result

    def goes_on(self):
        for _ in range(self.rnd.randrange(4)):
            self.rnd.choice((self.new, self.change, self.settle))()


def recounted(owner, aside):
    async def all_states():
        return [await recount.recount(owner.spool, s, aside) for s in sorted(FINAL)]

    return asyncio.run(all_states())


@pytest.fixture
def busy(tmp_path, monkeypatch, request):
    monkeypatch.setattr(recount, "PIECE", 1)  # each directory is a piece
    owner = Owner(tmp_path)
    owner.open()
    busy = Busy(owner, request.param)
    for _ in range(25):
        busy.new()
    busy.settle()
    return busy


@pytest.mark.parametrize("busy", range(12), indirect=True)
def test_what_changes_meanwhile_is_not_taken_for_a_hand(busy):
    for found in recounted(busy.owner, busy.aside):
        assert found.counted == found.there, found.state
    busy.owner.apply()
    assert check_live(busy.owner.spool) == []


@pytest.mark.parametrize("first", [0, 1])
def test_two_that_have_noted_the_same_are_still_two(tmp_path, first):
    owner = Owner(tmp_path)
    owner.open()
    ids = ["20270115.0800.00.000.1", "20270115.0800.00.000.2"]
    for msg_id in ids:
        owner.spool.submit(a_message(msg_id))
    notes = [{}, {}]
    watched = [owner.spool.events.watched_by(noted) for noted in notes]
    for each in watched:
        each.__enter__()
    owner.spool.claim(ids[0], 0)
    watched[first].__exit__(None, None, None)
    owner.spool.claim(ids[1], 0)
    watched[1 - first].__exit__(None, None, None)
    owner.end(ids[1], Event.FINISH)
    assert notes[first] == {ids[0]: State.QUE}
    assert notes[1 - first] == dict.fromkeys(ids, State.QUE)


@pytest.mark.parametrize("busy", range(12), indirect=True)
def test_what_others_removed_is_found_and_nothing_else(busy):
    owner = busy.owner
    owner.apply()
    removed = busy.rnd.sample(busy.ended(), 5)
    for state, msg_id in removed:
        shutil.rmtree(owner.queue.message(state, msg_id))
    for found in recounted(owner, busy.aside):
        gone = sum(state is found.state for state, _ in removed)
        assert found.counted - found.there == gone, found.state
        recount.believe(owner.spool, found)
    owner.apply()
    assert check_live(owner.spool) == []
