"""Batches form as by the plain rule that looks through all groups each time, and what one
takes does not grow with how many messages wait."""

from __future__ import annotations

import pytest
from harness.steps import steps
from hypothesis import given, settings
from hypothesis import strategies as st

from rq.queues.schedule.batch_rule import Gathering, Rule

WAIT = 5.0


class Model:
    """Messages that wait for a batch, by the plain rule."""

    def __init__(self, most: int) -> None:
        self.now = 100.0
        self.number = 0
        self.most = most
        self.made = Gathering(Rule(most, WAIT, by="param1"))
        self.groups: dict[str, dict[str, float]] = {}
        self.hurried: dict[str, str] = {}  # group: message
        self.full: dict[str, None] = {}  # as they became so

    def adds(self, group: str, late: float, hurry: bool) -> None:
        self.number += 1
        msg_id, since = f"m{self.number}", self.now - late
        self.made.add(msg_id, since, {"param1": group}, hurry)
        known = self.groups.get(group, {})
        self.groups[group] = (
            {msg_id: since, **known} if hurry else {**known, msg_id: since}
        )
        if hurry:
            self.hurried[group] = msg_id
        self.judges(group)

    def judges(self, group: str) -> None:
        if len(self.groups.get(group, {})) >= self.most:
            self.full.setdefault(group)
        else:
            self.full.pop(group, None)

    def removes(self, which: int) -> None:
        known = [i for group in self.groups.values() for i in group]
        if known:
            self.leaves(known[which % len(known)])

    def leaves(self, msg_id: str) -> None:
        self.made.remove(msg_id)
        group = next(name for name, one in self.groups.items() if msg_id in one)
        del self.groups[group][msg_id]
        if not self.groups[group]:
            del self.groups[group]
        if self.hurried.get(group) == msg_id or group not in self.groups:
            self.hurried.pop(group, None)
        self.judges(group)

    def starts(self, group: str) -> float:
        oldest = next(iter(self.groups[group].values()))
        return 0.0 if group in self.hurried else oldest + WAIT

    def plain_rule(self) -> tuple[list[str], float | None]:
        if not self.groups:
            return [], None
        first = min(self.groups, key=lambda one: (self.starts(one), f'"{one}"'))
        if self.starts(first) > self.now:
            if not self.full:
                return [], self.starts(first)
            first = min(self.full, key=lambda g: next(iter(self.groups[g].values())))
        return list(self.groups[first])[: self.most], None

    def takes(self) -> list[str]:
        wanted = self.plain_rule()
        assert self.made.next_batch(self.now) == wanted
        for msg_id in wanted[0]:
            self.leaves(msg_id)
        return wanted[0]

    def passes(self, seconds: float) -> None:
        self.now += seconds


STEPS = st.one_of(
    *[
        st.tuples(
            st.just(Model.adds),
            st.sampled_from("abcd"),
            st.sampled_from((0.0, 1.0, 2.0)),
            st.just(False),
        )
    ]
    * 4,
    st.tuples(
        st.just(Model.adds), st.sampled_from("abcd"), st.just(0.0), st.just(True)
    ),
    st.tuples(st.just(Model.removes), st.integers(0, 30)),
    st.tuples(st.just(Model.takes)),
    st.tuples(st.just(Model.passes), st.sampled_from((1.0, 3.0, 6.0))),
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.lists(STEPS, min_size=10, max_size=80))
def test_batches_form_as_by_the_plain_rule(most, happens):
    model = Model(most)
    for act, *values in happens:
        act(model, *values)
    model.now += 1000.0
    while model.takes():
        pass
    assert not len(model.made)


def cost(number: int, groups: int, now: float) -> int:
    """Return the steps that it takes to form batches of two, beside `number` messages."""
    made = Gathering(Rule(2, WAIT, by="param1"))
    for at in range(number):
        made.add(f"m{at}", 100.0 + at / number, {"param1": at % groups})

    def form() -> None:
        for _ in range(100):
            for one in made.next_batch(now)[0]:
                made.remove(one)

    form()
    return steps(form)


@pytest.mark.parametrize("now", [1000.0, 102.0], ids=["waited enough", "full"])
@pytest.mark.parametrize("groups", [1, 100, 500], ids="{} groups".format)
def test_a_batch_costs_the_same_however_many_wait(groups, now):
    few, many = (
        cost(1000, groups, now),
        cost(20_000, groups * 20 if groups > 1 else 1, now),
    )
    assert many <= 3 * few


def test_what_is_remembered_of_batches_that_have_started_is_bounded():
    made = Gathering(Rule(2, WAIT, by="param1"))
    for at in range(3000):
        made.add(f"a{at}", 100.0 + at, {"param1": at % 7})
        made.add(f"b{at}", 100.0 + at, {"param1": at % 7})
        for one in made.next_batch(1e9)[0]:
            made.remove(one)
    assert max(len(made._alarms), len(made._by_age)) < 200
