"""Which fires were missed, and how many: pure rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rq.timers import missed
from rq.timers.cron import cron
from rq.timers.missed import MOST_COUNTED, Span, Why
from rq.timers.past import Past
from rq.timers.rule import Timer

HOUR = 3600.0
NOON = 1_772_366_400.0 + 12 * HOUR  # 2026-03-01 in UTC
HOURLY = Timer("t", 0, "q", {}, cron("0 * * * *", "UTC"))
PERIODIC = Timer("t", 3600, "q", {})


@pytest.mark.parametrize("timer", [HOURLY, PERIODIC])
def test_the_fire_that_is_sent_is_not_among_those_before_it(timer):
    assert missed.before(timer, NOON, NOON + HOUR) is None
    assert missed.before(timer, NOON, NOON + 4 * HOUR) == Span(
        NOON + HOUR, NOON + 3 * HOUR, 3
    )
    assert missed.until(timer, NOON, NOON + 2 * HOUR) == Span(
        NOON + HOUR, NOON + 2 * HOUR, 2
    )
    assert missed.until(timer, NOON, NOON) is None
    assert missed.before(timer, None, NOON) is None


def test_a_period_that_is_made_up_for_late_was_planned_for_its_last_time():
    late = NOON + 4.5 * HOUR
    assert missed.planned(PERIODIC, NOON, late) == NOON + 4 * HOUR
    assert missed.before(PERIODIC, NOON, late) == Span(NOON + HOUR, NOON + 3 * HOUR, 3)
    assert missed.planned(PERIODIC, None, late) == late
    assert missed.planned(HOURLY, NOON, NOON + 4 * HOUR) == NOON + 4 * HOUR


@given(
    base=st.floats(1e9, 2e9),
    period=st.integers(60, 10**6),
    count=st.integers(1, 10**6),
)
def test_a_sum_of_fractions_counts_neither_one_too_many_nor_too_few(
    base, period, count
):
    timer = Timer("t", period, "q", {})
    span = missed.before(timer, base, base + count * period)
    assert (span.count if span else 0) == count - 1


def test_a_hundred_and_more_are_counted_truly():
    minutes = Timer("t", 0, "q", {}, cron("* * * * *", "Europe/Berlin"))
    span = missed.before(minutes, NOON, NOON + 5000 * 60)
    assert span == Span(NOON + 60, NOON + 4999 * 60, 4999)
    year = missed.until(minutes, NOON, NOON + 365 * 86400)
    assert (year.count, year.more) == (MOST_COUNTED, True)
    assert (year.first, year.to) == (NOON + 60, NOON + 365 * 86400)


def test_why_is_the_last_try_unless_that_was_long_ago():
    refused = Past(
        failures=3, tried=NOON, why="no queue", error="there is no queue 'q'"
    )
    assert missed.why(refused, NOON + 61) == (Why.NO_QUEUE, "there is no queue 'q'")
    assert missed.why(refused, NOON + HOUR) == (Why.DOWN, "")
    assert missed.why(Past(), NOON) == (Why.DOWN, "")
