"""The schedule decides as the plain rule does that looks through all each time, and what
it looks at does not grow with what waits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rq.message.rank import PLAIN
from rq.queues.schedule.line import Item
from rq.queues.schedule.waiting import Waiting

KEYS = ("a", "b", "c", None)


class Model:
    """A queue seen by the plain rule: of all that wait the first by (due, arrival) that
    is due, rides with nobody and whose key nobody runs with."""

    def __init__(self) -> None:
        self.now = 10.0
        self.seq = 0
        self.items: dict[str, Item] = {}  # in que
        self.key: dict[str, str | None] = {}
        self.leader: dict[str, str] = {}  # rider: leader
        self.running: dict[str, str | None] = {}  # message: key
        self.looked = 0
        self.schedule = Waiting(
            lambda item, priority: self.items.get(item.msg_id) == item,
            lambda msg_id: "",
            self.leader.get,
            lambda msg_id: PLAIN,
        )

    def arrives(self, due: float, key: str | None) -> None:
        self.seq += 1
        msg_id = f"m{self.seq}"
        self.key[msg_id] = key
        self.waits(msg_id, due)

    def waits(self, msg_id: str, due: float) -> None:
        self.seq += 1
        self.items[msg_id] = Item(due, self.seq, msg_id)
        self.schedule.add(self.items[msg_id])

    def by_plain_rule(self) -> str | None:
        busy = set(self.running.values())
        free = (
            item
            for item in sorted(self.items.values())
            if item.due <= self.now
            and item.msg_id not in self.leader
            and (self.key[item.msg_id] is None or self.key[item.msg_id] not in busy)
        )
        return next((item.msg_id for item in free), None)

    def by_schedule(self) -> str | None:
        busy = {key for key in self.running.values() if key is not None}
        while True:
            found, later = self.schedule.next_due(self.now, self.key_of, busy)
            if found is not None or later is None or later > self.now:
                return found

    def key_of(self, msg_id: str) -> str | None:
        self.looked += 1
        return self.key[msg_id]

    # ---- what may happen

    def claims(self, riders: int) -> None:
        wanted = self.by_plain_rule()
        assert self.by_schedule() == wanted
        if wanted is None:
            return
        del self.items[wanted]
        self.running[wanted] = self.key[wanted]
        equal = (i for i in self.items if self.key[i] == self.key[wanted])
        for rider in [i for i in equal if i not in self.leader][:riders]:
            self.leader[rider] = wanted

    def fails_to_claim(self) -> None:
        """What the schedule gave could not be claimed, and waits again."""
        found = self.by_schedule()
        if found is not None:
            self.waits(found, self.items[found].due)

    def ends(self, which: int, well: bool, again: float | None) -> None:
        if not self.running:
            return
        msg_id = sorted(self.running)[which % len(self.running)]
        key = self.running.pop(msg_id)
        riders = [i for i, leader in self.leader.items() if leader == msg_id]
        for rider in riders:
            del self.leader[rider]
        if well:
            for rider in riders:
                del self.items[rider]
            self.schedule.forget_riders(msg_id)
        else:
            self.schedule.part(msg_id)
        if again is not None:
            self.waits(msg_id, again)
        if key is not None:
            self.schedule.release(key)

    def is_discarded(self, which: int) -> None:
        if self.items:
            msg_id = sorted(self.items)[which % len(self.items)]
            del self.items[msg_id]
            self.leader.pop(msg_id, None)

    def is_hurried(self, which: int) -> None:
        alone = sorted(i for i in self.items if i not in self.leader)
        if alone:
            first = self.schedule.first_due(self.now)
            assert first is not None
            self.waits(alone[which % len(alone)], min(first, self.now) - 1.0)

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def looks_anew(self) -> None:
        self.schedule.release_all()


_which = st.integers(0, 50)
_dues = st.integers(0, 30).map(float)
ARRIVALS = st.tuples(_dues, st.sampled_from(KEYS))
STEPS = st.one_of(
    st.tuples(st.just(Model.arrives), _dues, st.sampled_from(KEYS)),
    st.tuples(st.just(Model.claims), st.sampled_from((0, 0, 1, 3))),
    st.tuples(st.just(Model.claims), st.just(0)),
    st.tuples(st.just(Model.ends), _which, st.booleans(), st.none() | _dues),
    st.tuples(st.just(Model.is_discarded), _which),
    st.tuples(st.just(Model.is_hurried), _which),
    st.tuples(st.just(Model.passes), st.integers(1, 9).map(float)),
    st.tuples(st.just(Model.fails_to_claim)),
    st.tuples(st.just(Model.looks_anew)),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(ARRIVALS, min_size=4, max_size=20), st.lists(STEPS, max_size=60))
def test_the_schedule_decides_as_the_plain_rule(arrivals, steps):
    model = Model()
    for values in arrivals:
        model.arrives(*values)
    for act, *values in steps:
        act(model, *values)
    model.now += 1000.0
    while model.items or model.running:  # nobody is forgotten
        model.claims(0)
        model.claims(0)
        model.ends(0, True, None)


def looks(number: int) -> int:
    """Run equal messages one after the other; return how often a key was asked for, each time
    of which may read a file."""
    model = Model()
    for _ in range(number):
        model.arrives(1.0, "k")
    while model.items:
        found = model.by_schedule()
        assert found is not None
        del model.items[found]
        model.running[found] = "k"
        assert model.by_schedule() is None  # a second slot is free while it runs
        del model.running[found]
        model.schedule.release("k")
    return model.looked


def test_no_more_is_looked_at_however_many_wait_with_equal_keys():
    assert looks(300) <= 300 * 4
    assert looks(3000) <= 3000 * 4


def test_riders_are_in_the_schedule_once_however_often_their_leader_fails():
    model = Model()
    for _ in range(100):
        model.arrives(1.0, None)
    for _ in range(50):
        model.claims(99)
        assert model.by_schedule() is None  # all others ride
        model.ends(0, False, 1.0)
        assert len(model.schedule) == 100
