"""Unique keys in memory follow every event, and are the same after a stop, kill -9 and an
index that is older than the journal."""

import json
import random

import pytest
from harness.spool import Owner, a_message

from rq.spool import decisions, index
from rq.words.states import Event, Role, State


def known(owner):
    """Return who has which key, by where it is, and who was accepted last."""
    uniques = owner.spool.uniques
    there = {
        state: {key: set(members.some(key, 99)) for key in "abc" for key in [f"={key}"]}
        for state, members in (("que", uniques.waiting), ("run", uniques.running))
    }
    return there, {key: last.msg_id for key, last in uniques.last.items()}


def expected(owner):
    """Return the same by looking at every message."""
    there = {state: {f"={key}": set() for key in "abc"} for state in ("que", "run")}
    for msg_id in owner.spool.live():
        state = owner.spool.find(msg_id)
        if state in (State.QUE, State.RUN):
            key = f"={owner.spool.read(msg_id).unique_key}"
            there[str(state)][key].add(msg_id)
    return there


class Course:
    """What happens to a queue by chance, and who was accepted last."""

    def __init__(self, owner, seed):
        self.owner, self.chance = owner, random.Random(seed)
        self.last = {}

    @property
    def spool(self):
        return self.owner.spool

    def submit(self):
        key, msg_id = self.chance.choice("abc"), self.spool.new_id()
        self.spool.submit(a_message(msg_id, unique_key=key))
        self.last[f"={key}"] = msg_id

    def decide(self):
        txn = decisions.open_one(self.spool, None, 60.0)
        ids = {}
        for key in self.chance.sample("abc", 2):
            ids[key] = self.spool.new_id()
            message = a_message(ids[key], unique_key=key)
            self.spool.prepare_in(txn.txn_id, message)
        chosen = dict(list(ids.items())[: self.chance.randrange(3)])
        decisions.commit(self.spool, txn, list(chosen.values()))
        self.last.update({f"={key}": msg_id for key, msg_id in chosen.items()})

    def _some(self, state):
        there = [i for i in self.spool.live() if self.spool.find(i) is state]
        return self.chance.choice(there) if there else None

    def claim(self):
        if msg_id := self._some(State.QUE):
            self.spool.claim(msg_id, 0)

    def discard(self):
        if msg_id := self._some(State.QUE):
            self.spool.fire(msg_id, Event.DISCARD, Role.CREATOR)
            self.last = {k: i for k, i in self.last.items() if i != msg_id}

    def end(self):
        if msg_id := self._some(State.RUN):
            message = self.spool.read(msg_id)
            event = self.chance.choice([Event.FINISH, Event.FAIL, Event.RETRY])
            more = {"message": message} if event is Event.RETRY else {}
            facts = {"cause": "done", "text": "", "outcome": "done"}
            self.spool.fire(msg_id, event, Role.QUEUE, facts=facts, **more)

    def restart(self):
        self.owner.apply()
        self.owner.stop()
        self.owner.open()

    def settle(self):
        self.owner.apply()

    def write_index(self):
        self.spool.commit()
        writing = index.Writing(self.spool.dir_fd, index.lines_of(self.spool))
        while writing.write_slice():
            pass
        writing.finish()

    def checkpoint(self):
        self.owner.checkpoint()


STEPS = (
    *("submit", "submit", "decide", "claim", "claim", "end", "end", "discard"),
    *("settle", "checkpoint", "write_index", "restart"),
)


@pytest.mark.parametrize("seed", range(12))
def test_keys_follow_whatever_happens(tmp_path, seed):
    owner = Owner(tmp_path)
    setting = {"unique": {"scope": "window", "seconds": 3600}}
    owner.queue.config.write_text(json.dumps(setting))
    owner.open()
    course = Course(owner, seed)
    for number in range(60):
        getattr(course, course.chance.choice(STEPS))()
        assert known(owner) == (expected(owner), course.last)
        if number % 10 == 9:
            owner.spool.commit()
            before = course.last
            owner.again()  # what ran goes back to que
            assert known(owner) == (expected(owner), before)
    owner.stop()
