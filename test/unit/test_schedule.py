"""Which message runs next, and which are equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.errors import Unread
from rq.message.rank import PLAIN
from rq.queues.schedule import coalesce
from rq.queues.schedule.destinations import MOST, PROBE
from rq.queues.schedule.line import Item
from rq.queues.schedule.waiting import Waiting


def waiting(*items, gone=()):
    """Return a schedule; the dest of `a1` is `a`."""
    made = Waiting(
        lambda item, priority: item.msg_id not in gone,
        lambda msg_id: msg_id[0],
        {}.get,
        lambda msg_id: PLAIN,
    )
    made.fill((item, PLAIN) for item in items)
    return made


def take(queue, now, keys=None, busy=()):
    return queue.next_due(now, (keys or {}).get, busy)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100)), unique=True))
def test_messages_run_by_due_and_then_as_they_came(pairs):
    items = [Item(float(due), seq, f"m{due}-{seq}") for due, seq in pairs]
    queue = waiting(*items[: len(items) // 2])
    for item in items[len(items) // 2 :]:
        queue.add(item)
    taken = [take(queue, 10.0)[0] for _ in items]
    assert taken == [item.msg_id for item in sorted(items)]
    assert take(queue, 10.0) == (None, None)


def test_the_next_wake_up_is_exactly_when_the_first_is_due():
    queue = waiting(Item(5.5, 1, "a"), Item(7.0, 2, "b"))
    assert take(queue, 5.4) == (None, 5.5)
    assert take(queue, 5.5) == ("a", None)
    assert take(queue, 5.5) == (None, 7.0)


def test_a_message_that_has_moved_on_is_skipped():
    queue = waiting(Item(1.0, 1, "a"), Item(2.0, 2, "b"), gone={"a"})
    assert queue.first_due(10.0) == 2.0
    assert take(queue, 3.0) == ("b", None)


def test_a_message_whose_exclusion_key_cannot_be_told_now_is_not_lost():
    queue = waiting(Item(1.0, 1, "a"), Item(2.0, 2, "b"))

    def lacks(msg_id):
        raise Unread("msg couldn't be read: Too many open files")

    with pytest.raises(Unread):
        queue.next_due(3.0, lacks, ())
    assert take(queue, 3.0) == ("a", None)
    assert take(queue, 3.0) == ("b", None)


def test_two_of_one_exclusion_key_do_not_run_at_once():
    keys = {"a": "k", "b": "k", "c": "other"}
    queue = waiting(Item(1.0, 1, "a"), Item(1.0, 2, "b"), Item(1.0, 3, "c"))
    assert take(queue, 2.0, keys) == ("a", None)
    assert take(queue, 2.0, keys, busy={"k"}) == ("c", None)
    assert take(queue, 2.0, keys, busy={"k", "other"}) == (None, None)
    queue.release("other")
    assert take(queue, 2.0, keys, busy={"k"}) == (None, None)
    queue.release("k")
    assert take(queue, 2.0, keys) == ("b", None)


def test_what_is_held_still_counts_as_waiting():
    queue = waiting(Item(1.0, 1, "a"), Item(9.0, 2, "b"))
    assert take(queue, 2.0, {"a": "k"}, busy={"k"}) == (None, 9.0)
    assert queue.first_due(10.0) == 1.0
    queue.release_all()
    assert take(queue, 2.0) == ("a", None)


def test_none_is_tried_for_a_host_that_is_left_alone_and_then_one_is():
    queue = waiting(*(Item(1.0, n, f"a{n}") for n in range(4)), Item(2.0, 9, "b1"))
    assert take(queue, 10.0) == ("a0", None)
    queue.hold("a0", "a", "host", 20.0)
    queue.add(Item(1.0, 10, "a0"))
    assert take(queue, 10.0) == ("b1", None)
    assert take(queue, 10.0) == (None, 20.0)
    assert queue.first_due(10.0) == 20.0
    assert take(queue, 20.0) == ("a1", None)
    assert take(queue, 20.0) == (None, 20.0 + PROBE)
    queue.hold("a1", "a", "host", 50.0)  # in vain
    queue.add(Item(1.0, 11, "a1"))
    assert take(queue, 49.0) == (None, 50.0)
    assert take(queue, 50.0) == ("a2", None)
    queue.hold_no_longer("a")
    found = [take(queue, 50.0)[0] for _ in range(4)]
    assert found == ["a3", "a0", "a1", None]


def test_a_second_queue_of_a_host_waits_with_the_first_once_it_has_asked():
    queue = waiting(Item(1.0, 1, "a1"), Item(1.0, 2, "b1"), Item(1.0, 3, "b2"))
    queue.hold("a9", "a", "host", 20.0)
    assert take(queue, 10.0) == ("b1", None)
    queue.hold("b9", "b", "host", 20.0)
    assert take(queue, 10.0) == (None, 20.0)
    assert take(queue, 20.0) == ("a1", None)
    queue.hold_no_longer("a")
    assert take(queue, 20.0) == ("b2", None)


def test_one_that_is_hurried_is_tried_at_once_and_the_others_still_wait():
    queue = waiting(Item(1.0, 1, "a1"), Item(2.0, 2, "a2"))
    queue.hold("a9", "a", "host", 20.0)
    assert take(queue, 10.0) == (None, 20.0)
    queue.add(Item(0.0, 3, "a3"))
    queue.hurry("a3")
    assert take(queue, 10.0)[0] == "a3"
    assert take(queue, 10.0) == (None, 10.0 + PROBE)


def test_many_that_wait_are_put_aside_a_part_at_a_time_and_none_is_lost():
    items = [Item(1.0, n, f"a{n}") for n in range(1200)]
    queue = waiting(*items)
    queue.hold("a9", "a", "host", 20.0)
    assert [take(queue, 10.0) for _ in range(3)] == [(None, 10.0)] * 2 + [(None, 20.0)]
    queue.release_all()
    taken = [take(queue, 30.0)[0] for _ in items]
    assert taken == [item.msg_id for item in items]


def test_only_so_many_can_be_left_alone_and_no_more_than_that_are_remembered():
    queue = waiting(Item(1.0, 1, "a1"))
    for number in range(MOST):
        assert queue.has_room("a", f"host{number}", 10.0)
        queue.hold("a9", "a", f"host{number}", 20.0)
    assert take(queue, 10.0) == (None, 20.0)
    assert not queue.has_room("b", "one more", 19.0)
    assert queue.has_room("b", "host0", 19.0)
    assert queue.has_room("b", "one more", 20.0), "nobody waits for the others"
    assert take(queue, 20.0) == ("a1", None), "and who waits is not forgotten"


def test_only_so_many_dests_can_wait():
    queue = waiting()
    for number in range(MOST):
        assert queue.has_room(f"dest{number}", "host", 10.0)
        queue.hold("a9", f"dest{number}", "host", 20.0)
    assert not queue.has_room("one more", "host", 10.0)
    assert queue.has_room("dest0", "host", 10.0)
    assert queue.has_room("one more", "host", 20.0)


def test_nothing_waits_in_an_empty_queue():
    assert waiting().first_due(10.0) is None
    assert take(waiting(), 1e9) == (None, None)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ({"param1": "a"}, {"param1": "a", "param3": "x"}, True),
        ({"param1": "a"}, {"param1": "b"}, False),
        ({}, {}, True),
        ({}, {"param1": ""}, False),
        ({"param1": "1"}, {"param1": 1}, True),  # a script gets the same
        ({"param1": 1}, {"param1": 1.0}, False),
        ({"param1": "a", "param2": "b"}, {"param1": "ab", "param2": ""}, False),
        ({"param1": ["a"]}, {"param1": ["a"]}, True),
    ],
)
def test_equal_is_what_agrees_in_all_listed_params(one, other, equal):
    assert (coalesce.key(one, (1, 2)) == coalesce.key(other, (1, 2))) is equal


def test_nothing_is_equal_when_nothing_is_compared():
    assert coalesce.key({"param1": "a"}, ()) is None


def test_a_group_gives_the_others_in_the_order_they_came():
    groups = coalesce.Groups()
    for one in ("c", "a", "b"):
        groups.add("k", one)
    assert groups.others("k", "a", 9) == ["c", "b"]
    assert groups.others("k", "a", 1) == ["c"]
    groups.remove("k", "c")
    groups.remove("k", "c")
    groups.remove("unknown", "x")
    assert groups.others("k", "a", 9) == ["b"]
    assert groups.others("unknown", "x", 9) == []


def test_after_very_many_have_gone_it_is_looked_at_again_at_once():
    gone = {f"a{number}" for number in range(1200)}
    items = [Item(1.0, number, f"a{number}") for number in range(1201)]
    queue = waiting(*items, gone=gone)
    assert not queue.has_due(10.0)  # that is not known yet
    assert queue.look_from(10.0) == 10.0
    assert queue.has_due(10.0)
    assert take(queue, 10.0) == ("a1200", None)
    assert queue.look_from(10.0) is None
