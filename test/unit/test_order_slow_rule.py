"""The schedule runs messages as a plain rule does that looks through all each time: by
priority, turns of keys, due and arrival, so many of a key at a time."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rq.message.rank import rank
from rq.queues.schedule.exclusion import Places
from rq.queues.schedule.line import Item
from rq.queues.schedule.waiting import Waiting

TENANTS = ("a", "b", "c")


class Model:
    """A queue seen by the plain rule; each key of a limit is of one tenant, or is free."""

    def __init__(self, most: int, fair: bool) -> None:
        self.now, self.seq, self.fair = 10.0, 0, fair
        self.items: dict[str, Item] = {}  # in que
        self.of: dict[str, tuple[int, str, str]] = {}  # priority, tenant, key
        self.running: dict[str, str] = {}  # message: key
        self.places = Places(most)
        self.most = most
        self.new_schedule()

    def new_schedule(self) -> None:
        """Make the schedule anew, as a start, a reload or a clock that goes back does."""
        self.schedule = Waiting(self.is_valid, lambda msg_id: "", {}.get, self.rank)
        self.schedule.fill((item, self.rank(i)) for i, item in self.items.items())
        # Since each tenant has run, those which wait have not: the others' turns.
        self.passed: dict[int, dict[tuple[str, str], int]] = {}

    def rank(self, msg_id):
        priority, tenant, key = self.of[msg_id]
        return rank(priority, key, tenant if self.fair else "")

    def is_valid(self, item, priority) -> bool:
        known = self.items.get(item.msg_id)
        return known == item and self.of[item.msg_id][0] == priority

    def arrives(self, due: float, priority: int, tenant: str, with_key: bool) -> None:
        self.seq += 1
        msg_id = f"m{self.seq}"
        self.of[msg_id] = priority, tenant, f"k{tenant}" if with_key else ""
        self.waits(msg_id, due)

    def waits(self, msg_id: str, due: float) -> None:
        self.seq += 1
        self.items[msg_id] = Item(due, self.seq, msg_id)
        self.schedule.add(self.items[msg_id])

    def free(self) -> list[Item]:
        """Return those that may run, by (priority, due, arrival)."""
        busy = list(self.running.values())
        free = [
            item
            for item in self.items.values()
            if item.due <= self.now
            and (
                not self.of[item.msg_id][2]
                or busy.count(self.of[item.msg_id][2]) < self.most
            )
        ]
        return sorted(free, key=lambda item: (-self.of[item.msg_id][0], item))

    def next(self) -> str | None:
        while True:
            msg_id, later = self.schedule.next_due(
                self.now, lambda i: self.of[i][2] or None, self.places
            )
            if msg_id is not None or later is None or later > self.now:
                if msg_id is None and later is not None:
                    dues = [i.due for i in self.items.values() if i.due > self.now]
                    assert later <= min(dues, default=later)  # none is overslept
                return msg_id

    # ---- what may happen

    def claims(self) -> None:
        free = self.free()
        given = list(self.schedule.in_order(self.now))
        claimed = self.next()
        if not free:
            assert claimed is None
            return
        assert claimed is not None
        first = free[0]
        assert self.of[claimed][0] == self.of[first.msg_id][0], "priority is strict"
        same = [i for i in free if self.of[i.msg_id][0] == self.of[claimed][0]]
        if not self.fair:
            assert claimed == first.msg_id
        else:
            own = [i for i in same if self.of[i.msg_id][1] == self.of[claimed][1]]
            assert claimed == own[0].msg_id, "of one tenant the first"
            self.check_turn(claimed, {self.of[i.msg_id][1] for i in same})
        if not self.running:
            assert claimed == given[0], "who is listed first runs first"
        assert sorted(given) == sorted(self.items), "all are listed, each once"
        del self.items[claimed]
        self.running[claimed] = self.of[claimed][2]
        if self.of[claimed][2]:
            self.places.take(self.of[claimed][2], claimed)

    def check_turn(self, claimed: str, tenants: set[str]) -> None:
        """None that could run is passed over twice by another of its priority."""
        priority, winner, _ = self.of[claimed]
        lanes = self.passed.setdefault(priority, {})
        for tenant in TENANTS:
            if tenant == winner or tenant not in tenants:
                for pair in [pair for pair in lanes if pair[0] == tenant]:
                    del lanes[pair]
            else:
                lanes[tenant, winner] = lanes.get((tenant, winner), 0) + 1
                assert lanes[tenant, winner] <= 2, "turns go round"

    def ends(self, which: int, again: float | None) -> None:
        if not self.running:
            return
        msg_id = sorted(self.running)[which % len(self.running)]
        key = self.running.pop(msg_id)
        if again is not None:
            self.waits(msg_id, again)
        if key:
            self.places.free(key, msg_id)
            if key not in self.places:
                self.schedule.release(key)

    def fails_to_claim(self) -> None:
        msg_id = self.next()
        if msg_id is not None:
            self.schedule.add(self.items[msg_id])
            self.passed.clear()

    def is_discarded(self, which: int) -> None:
        if self.items:
            del self.items[sorted(self.items)[which % len(self.items)]]

    def changes(self, which: int, priority: int, due: float | None) -> None:
        if not self.items:
            return
        msg_id = sorted(self.items)[which % len(self.items)]
        item = self.items[msg_id]
        self.of[msg_id] = priority, *self.of[msg_id][1:]
        self.items[msg_id] = item._replace(due=item.due if due is None else due)
        self.schedule.add(self.items[msg_id])

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def goes_back(self, seconds: float) -> None:
        self.now -= seconds
        self.new_schedule()

    def slips(self) -> None:
        """The clock goes back by too little for anybody to see it."""
        self.now -= 0.5

    def reloads(self, most: int) -> None:
        self.most = self.places.most = most
        self.schedule.release_all()
        self.passed.clear()


_which, _priority = st.integers(0, 50), st.sampled_from((0, 0, 0, 5, 9))
_dues = st.integers(0, 30).map(float)
ARRIVALS = st.tuples(_dues, _priority, st.sampled_from(TENANTS), st.booleans())
STEPS = st.one_of(
    ARRIVALS.map(lambda values: (Model.arrives, *values)),
    st.just((Model.claims,)),
    st.just((Model.claims,)),
    st.just((Model.claims,)),
    st.tuples(st.just(Model.ends), _which, st.none() | _dues),
    st.tuples(st.just(Model.is_discarded), _which),
    st.tuples(st.just(Model.changes), _which, _priority, st.none() | _dues),
    st.tuples(st.just(Model.passes), st.integers(1, 9).map(float)),
    st.tuples(st.just(Model.goes_back), st.integers(1, 20).map(float)),
    st.tuples(st.just(Model.reloads), st.integers(1, 3)),
    st.just((Model.slips,)),
    st.just((Model.fails_to_claim,)),
)


# The first of those that wait for a key gets the least priority, the last of them the most.
SWAPPED = [
    (Model.claims,),
    (Model.arrives, 0.0, 0, "a", False),
    (Model.claims,),
    (Model.changes, 0, 0, None),
    (Model.changes, 1, 5, None),
]


@example(
    1,
    False,
    [(0.0, 0, "a", False), *[(0.0, 5, "a", True)] * 2, (0.0, 0, "a", True)],
    SWAPPED,
)
@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 3),
    st.booleans(),
    st.lists(ARRIVALS, min_size=4, max_size=20),
    st.lists(STEPS, max_size=60),
)
def test_messages_run_as_by_the_plain_rule(most, fair, arrivals, steps):
    model = Model(most, fair)
    for values in arrivals:
        model.arrives(*values)
    for act, *values in steps:
        act(model, *values)
    model.passes(1000.0)
    while model.items or model.running:  # nobody is forgotten
        model.claims()
        model.claims()
        model.ends(0, None)


def test_a_tenant_with_a_hundred_thousand_messages_does_not_starve_one_with_ten():
    model = Model(1, True)
    for number in range(100_000):
        model.of[f"a{number}"] = 0, "a", ""
        model.items[f"a{number}"] = Item(1.0, number, f"a{number}")
    model.new_schedule()
    model.seq = 100_000
    for _ in range(10):
        model.arrives(2.0, 0, "b", False)
    taken = [model.next() for _ in range(20)]
    assert [model.of[i][1] for i in taken] == ["a", "b"] * 10


def test_among_those_that_wait_for_one_key_turns_go_round_too():
    model = Model(1, True)
    for number in range(30):
        model.arrives(1.0, 0, "b" if number >= 27 else "a", False)
        msg_id = f"m{model.seq - 1}"
        model.of[msg_id] = 0, model.of[msg_id][1], "one key"
    tenants = []
    while model.items:
        msg_id = model.next()
        assert msg_id is not None
        tenants.append(model.of[msg_id][1])
        del model.items[msg_id]
        model.places.take("one key", msg_id)
        assert model.next() is None
        model.places.free("one key", msg_id)
        model.schedule.release("one key")
    assert sorted(tenants[:7]).count("b") == 3


def test_the_smallest_due_of_many_keys_is_known_after_each_claim():
    model = Model(1, True)
    for number in range(300):
        due = float(number * 37 % 101)
        model.arrives(due, number % 2, f"tenant{number % 60}", False)
    model.now = 50.0
    while (msg_id := model.next()) is not None:
        given = list(model.schedule.in_order(model.now))
        del model.items[msg_id]
        assert sorted(given) == sorted(model.items)
        dues = [item.due for item in model.items.values()]
        assert model.schedule.first_due(model.now) == min(dues, default=None)
        model.now += 0.2
    assert not model.items
