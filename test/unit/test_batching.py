"""Which messages form a batch now, and when to look again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.queues.schedule.batch_rule import Gathering, Rule, rule


def gathering(most=3, wait=60.0, by=None, complete=None):
    return Gathering(Rule(most, wait, by, complete))


def add(made, *ids, since=100.0, **params):
    for one in ids:
        made.add(one, since, params)


def taken(made, now):
    ids, _ = made.next_batch(now)
    for one in ids:
        made.remove(one)
    return ids


def test_a_queue_without_the_setting_has_no_rule():
    assert rule({}) is None
    assert rule({"max": 5, "wait": 1.0}) == Rule(5, 1.0)


def test_nothing_is_gathered_and_nobody_needs_to_look():
    assert gathering().next_batch(1e9) == ([], None)


def test_a_batch_starts_when_it_is_full():
    made = gathering(most=3)
    add(made, "a", "b")
    assert made.next_batch(100.0) == ([], 160.0)
    add(made, "c", "d")
    assert taken(made, 100.0) == ["a", "b", "c"]
    assert made.next_batch(100.0) == ([], 160.0)


def test_a_batch_starts_when_its_first_has_waited_long_enough():
    made = gathering()
    add(made, "a", since=100.0)
    add(made, "b", since=150.0)
    assert made.next_batch(159.9) == ([], 160.0)
    assert taken(made, 160.0) == ["a", "b"]


def test_the_wait_is_that_of_the_first_that_is_left():
    made = gathering()
    add(made, "a", since=100.0)
    add(made, "b", since=150.0)
    made.remove("a")
    assert made.next_batch(160.0) == ([], 210.0)


def test_messages_go_by_the_value_of_their_param():
    made = gathering(most=2, by="param1")
    add(made, "a", "c", param1="x")
    add(made, "b", param1="y")
    add(made, "d", param1=["y"])
    assert taken(made, 100.0) == ["a", "c"]
    assert made.next_batch(100.0) == ([], 160.0)
    assert [taken(made, 160.0) for _ in range(2)] == [["b"], ["d"]]


def test_a_missing_param_equals_a_missing_one_and_no_text():
    made = gathering(most=2, by="param1")
    add(made, "a", "b")
    add(made, "c", param1="")
    add(made, "d", param1="null")
    assert taken(made, 100.0) == ["a", "b"]
    assert made.next_batch(100.0) == ([], 160.0)


@pytest.mark.parametrize("parts", [2, "2", " 2 "])
def test_a_batch_starts_when_as_many_have_come_as_its_messages_say(parts):
    made = gathering(most=5, by="param1", complete="param2")
    add(made, "a", param1="x", param2=parts)
    assert made.next_batch(100.0) == ([], 160.0)
    add(made, "b", param1="x", param2=parts)
    add(made, "c", param1="x", param2=parts)
    assert taken(made, 100.0) == ["a", "b"]


@pytest.mark.parametrize("parts", [None, 0, -1, "many", True, 2.0, "²", 6])
def test_what_cannot_be_a_number_of_parts_completes_nothing(parts):
    made = gathering(most=5, by="param1", complete="param2")
    add(made, "a", "b", param2=parts)
    assert made.next_batch(100.0) == ([], 160.0)
    assert taken(made, 160.0) == ["a", "b"]


def test_one_that_is_hurried_takes_along_who_is_there():
    made = gathering(most=2)
    add(made, "a", "b", "c")
    taken(made, 100.0)
    add(made, "d", since=110.0)
    made.add("d", 110.0, {}, hurry=True)
    assert taken(made, 111.0) == ["d", "c"]
    add(made, "e", since=120.0)
    assert made.next_batch(121.0) == ([], 180.0)


def test_it_tells_what_a_message_waits_for():
    made = gathering(most=5, by="param1", complete="param2")
    add(made, "a", param1="x", param2=3)
    add(made, "b", param1="x", since=120.0)
    assert made.about("b") == (2, 3, 160.0)
    assert made.oldest() == 100.0


KEYS = st.sampled_from(["x", "y", None])
STEPS = st.one_of(
    st.tuples(st.just("add"), KEYS),
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("wait"), st.integers(1, 20)),
)


class World:
    """A gathering, and beside it a list of who is there, which knows no shortcut."""

    def __init__(self, most, wait):
        self.made = gathering(most=most, wait=wait, by="param1")
        self.most, self.limit = most, wait
        self.now, self.number = 0.0, 0
        self.there = {}  # message: (value, since)

    def add(self, value):
        self.number += 1
        self.there[f"m{self.number}"] = (value, self.now)
        self.made.add(f"m{self.number}", self.now, {"param1": value})

    def remove(self, which):
        if self.there:
            gone = list(self.there)[which % len(self.there)]
            del self.there[gone]
            self.made.remove(gone)

    def wait(self, seconds):
        self.now += seconds

    def groups(self):
        found = {}
        for msg_id, (value, _) in self.there.items():
            found.setdefault(value, []).append(msg_id)
        return found

    def run(self):
        """Start all batches that may; each must be one that may."""
        while ids := taken(self.made, self.now):
            value, since = self.there[ids[0]]
            assert ids == self.groups()[value][: self.most]
            assert len(ids) == self.most or since + self.limit <= self.now
            for one in ids:
                del self.there[one]

    def prove(self):
        """Nobody is left who could have gone, and it is looked when the next may."""
        left = self.groups().values()
        assert all(len(one) < self.most for one in left)
        starts = [self.there[one[0]][1] + self.limit for one in left]
        assert self.made.next_batch(self.now) == ([], min(starts, default=None))
        assert min(starts, default=self.now + 1) > self.now
        assert len(self.made) == len(self.there)


@given(st.lists(STEPS, max_size=60), st.integers(1, 4), st.sampled_from([0.0, 10.0]))
def test_everybody_goes_once_with_their_like_and_nobody_waits_too_long(
    steps, most, wait
):
    world = World(most, wait)
    for what, value in steps:
        getattr(world, what)(value)
        world.run()
        world.prove()


def test_who_waited_long_enough_comes_before_a_group_that_is_full():
    made = gathering(most=2, by="param1")
    add(made, "a", "b", "c", "d", since=150.0, param1="busy")
    add(made, "x", since=100.0, param1="lone")
    assert taken(made, 155.0) == ["a", "b"]
    assert taken(made, 160.0) == ["x"]
    assert taken(made, 160.0) == ["c", "d"]


def test_who_is_to_run_at_once_comes_before_all_groups_that_are_full():
    made = gathering(most=2, by="param1")
    add(made, "a", "b", "c", "d", param1="busy")
    made.add("x", 150.0, {"param1": "lone"}, hurry=True)
    assert taken(made, 150.0) == ["x"]


def test_a_group_that_is_full_again_and_again_lets_the_others_have_their_turn():
    made = gathering(most=2, by="param1")
    add(made, "a", "b", "c", "d", since=100.0, param1="busy")
    add(made, "x", "y", since=101.0, param1="other")
    assert taken(made, 110.0) == ["a", "b"]
    add(made, "e", "f", since=110.0, param1="busy")
    assert taken(made, 110.0) == ["c", "d"]
    assert taken(made, 110.0) == ["x", "y"]
    assert taken(made, 110.0) == ["e", "f"]


def test_of_full_batches_the_one_starts_whose_first_waits_longest_now():
    made = gathering(most=2, by="param1")
    for one, since in (("a1", 100.0), ("a2", 103.0), ("a3", 104.0)):
        add(made, one, since=since, param1="a")
    for one, since in (("b1", 101.0), ("b2", 102.0)):
        add(made, one, since=since, param1="b")
    made.remove("a1")
    assert taken(made, 110.0) == ["b1", "b2"]
    assert taken(made, 110.0) == ["a2", "a3"]


def test_who_came_before_one_that_was_hurried_still_starts_in_time():
    made = gathering(most=5)
    add(made, "a", since=100.0)
    made.add("b", 130.0, {}, hurry=True)
    made.add("c", 140.0, {}, hurry=True)
    made.remove("c")
    assert made.next_batch(150.0) == ([], 190.0)
    made.remove("b")
    assert made.next_batch(159.0) == ([], 160.0)
