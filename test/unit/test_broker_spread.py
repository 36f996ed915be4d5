"""What a node remembers of jobs that are gone, however often and from whom it hears it."""

import pytest

from rq.broker.state.job import Buried, Copied
from rq.broker.state.spread import Spreads, copied_of

NOW = 1000.0
JOB = "D-01234567-aaaaaaaaaaaaaaaaaaaaaaaa-05a0"


@pytest.mark.parametrize(
    ("first", "second"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_a_job_that_one_node_calls_over_stays_over(first, second):
    spreads = Spreads()
    spreads.bury(Buried(JOB, NOW + 9, first, 0), NOW)
    spreads.bury(Buried(JOB, NOW + 9, second, 0), NOW)
    assert spreads.tombs[JOB].is_over == (first or second)


def test_a_tomb_keeps_the_latest_time_and_the_most_moves():
    spreads = Spreads()
    for until, moves in ((NOW + 9, 3), (NOW + 5, 7), (NOW + 7, 1)):
        spreads.bury(Buried(JOB, until, False, moves), NOW)
    tomb = spreads.tombs[JOB]
    assert (tomb.at, tomb.moves) == (NOW + 9, 7)
    spreads.forget(NOW + 8, 10)
    assert JOB in spreads.tombs
    spreads.forget(NOW + 10, 10)
    assert JOB not in spreads.tombs


def test_of_a_job_that_ends_the_tomb_knows_who_may_have_a_copy_still():
    spreads = Spreads()
    spread = spreads.copied(Copied(JOB, 2, ("a", "b", "c"), False, False, 4), JOB)
    spread.confirmed = frozenset({"b"})
    spreads.end(JOB, NOW + 9, True, NOW)
    tomb = spreads.tombs[JOB]
    assert (tomb.unaware, tomb.moves, tomb.is_over) == ({"a", "c"}, 4, True)
    assert JOB not in spreads.by_job


def test_a_job_that_ends_with_its_time_leaves_no_tomb_and_tells_its_producer():
    spreads = Spreads()
    spreads.copied(Copied(JOB, 1, ("a",), True, False, 0), JOB).client = 7
    spreads.end(JOB, NOW, True, NOW)
    assert (len(spreads), spreads.left) == (0, [7])


def test_an_entry_is_what_its_event_makes_it():
    event = Copied(JOB, 2, ("a", "b"), True, False, 3)
    assert copied_of(Spreads().copied(event, JOB)) == event
