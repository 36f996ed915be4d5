"""What timers catch up, how late they are on purpose, and clocks that jump: pure rules."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rq.timers.cron import cron
from rq.timers.past import Fire, Past, not_ahead, noted, with_rule
from rq.timers.rule import CatchUp, Overlap, Timer
from rq.timers.when import (
    counts_from,
    due,
    following,
    nominal,
    resumed,
    upcoming,
    without_missed,
)

HOUR, DAY = 3600.0, 86400.0
NOON = 1_772_366_400.0 + 12 * HOUR  # 2026-03-01 in UTC
HOURLY = cron("0 * * * *", "UTC")


def timer(catch_up=CatchUp.LAST, rule=HOURLY, **settings):
    period = 0 if rule else 3600
    return Timer("t", period, "q", {}, rule, catch_up=catch_up, **settings)


PERIODIC = timer(rule=None)


def fired(timer, past, now):
    """Fire whatever is due, as the timers process does; return the times, and the past."""
    times = []
    while True:
        past = without_missed(timer, not_ahead(past, now), now)
        if due(timer, past, now) > now:
            return times, past
        begun = nominal(timer, past, now)
        times.append(begun)
        last = counts_from(timer, begun, now)
        past = replace(past, last=last, failures=0, begun=None)


def seen(timer, now):
    return with_rule(Past(), timer, now)


def test_a_new_rule_fires_when_its_time_comes_and_not_at_once():
    past = seen(timer(), NOON + 60)
    assert upcoming(timer(), past, NOON + 60).at == NOON + HOUR
    times, past = fired(timer(), past, NOON + HOUR + 0.2)
    assert times == [NOON + HOUR]
    assert due(timer(), past, NOON + HOUR + 0.2) == NOON + 2 * HOUR


def test_a_rule_that_was_edited_does_not_make_up_for_what_it_would_have_fired():
    _, past = fired(timer(), seen(timer(), NOON), NOON + HOUR)
    edited = timer(rule=cron("30 * * * *", "UTC"))
    past = with_rule(past, edited, NOON + HOUR + 2400)
    assert due(edited, past, NOON + HOUR + 2400) == NOON + 2.5 * HOUR


def test_a_rule_that_was_touched_or_whose_message_was_edited_goes_on():
    past = seen(timer(), NOON)
    assert with_rule(past, timer(), NOON + 5000) is past


@pytest.mark.parametrize("rule", [HOURLY, None])
@pytest.mark.parametrize(
    ("catch_up", "most", "still"),
    [(CatchUp.LAST, 1, 0.0), (CatchUp.NONE, 0, 0.0), (CatchUp.ALL, 72, 0.0)],
)
def test_three_days_of_a_stop(catch_up, most, still, rule):
    one = timer(catch_up, rule)
    past = Past(last=NOON, rule=one.rule)
    times, past = fired(one, past, NOON + 3 * DAY + 300)
    assert len(times) == most
    if rule or catch_up is not CatchUp.LAST:
        last = [NOON + 3 * DAY - n * HOUR for n in range(most)]
        assert times == sorted(last)
        assert due(one, past, NOON + 3 * DAY + 300) == NOON + 3 * DAY + HOUR


def test_a_hundred_fires_at_most_are_made_up_for_and_these_are_the_newest():
    one = timer(CatchUp.ALL)
    times, _ = fired(one, Past(last=NOON, rule=one.rule), NOON + 30 * DAY)
    assert len(times) == 100
    assert times == [NOON + 30 * DAY - n * HOUR for n in reversed(range(100))]


def test_a_fire_a_little_late_is_not_missed():
    one = timer(CatchUp.NONE)
    past = Past(last=NOON, rule=one.rule)
    assert fired(one, past, NOON + HOUR + 29.9)[0] == [NOON + HOUR]
    assert fired(one, past, NOON + HOUR + 30.1)[0] == []


def test_what_is_not_made_up_for_is_told():
    one = timer(CatchUp.NONE)
    past = Past(last=NOON, rule=one.rule, failures=6, error="no queue", tried=NOON)
    past = without_missed(one, past, NOON + 2.5 * HOUR)
    told = (past.result, past.failures, past.error, past.over)
    assert told == ("skipped: no queue", 0, "", NOON + 2 * HOUR)


def test_a_fire_in_doubt_is_asked_for_again_however_late():
    for catch_up in CatchUp:
        one = timer(catch_up)
        past = Past(last=NOON, rule=one.rule, begun=NOON + HOUR)
        assert without_missed(one, past, NOON + DAY) is past
        assert nominal(one, past, NOON + DAY) == NOON + HOUR


# ---- clocks that jump


@pytest.mark.parametrize("jump", [HOUR, DAY, 400 * DAY])
@pytest.mark.parametrize("rule", [HOURLY, None])
def test_a_clock_put_ahead_makes_one_fire(jump, rule):
    one = timer(rule=rule)
    past = Past(last=NOON, rule=one.rule)
    times, past = fired(one, past, NOON + jump + 300)
    assert len(times) == 1
    assert 0 < due(one, past, NOON + jump + 300) - (NOON + jump + 300) <= HOUR


@pytest.mark.parametrize("jump", [0.01, HOUR, DAY, 400 * DAY])
@pytest.mark.parametrize("rule", [HOURLY, None])
@pytest.mark.parametrize("catch_up", CatchUp)
def test_a_clock_put_back_silences_for_no_longer_than_a_fire_takes(
    jump, rule, catch_up
):
    one = timer(catch_up, rule)
    past = Past(last=NOON, rule=one.rule)
    times, past = fired(one, past, NOON - jump)
    assert times == []
    assert 0 < due(one, past, NOON - jump) - (NOON - jump) <= HOUR


def test_a_clock_put_back_names_the_same_fires_again_so_none_is_sent_twice():
    one = timer()
    first, past = fired(one, seen(one, NOON - 60), NOON + 10)
    again, _ = fired(one, not_ahead(past, NOON - 60), NOON + 20)
    assert [one.key(at) for at in first] == [one.key(at) for at in again]


@settings(max_examples=25)  # each run draws others
@given(
    # Enough of an hourly timer for more fires than are made up; each costs time.
    st.lists(st.floats(min_value=-5e5, max_value=5e5), min_size=1, max_size=10),
    st.sampled_from(CatchUp),
    st.booleans(),
    st.integers(0, 3600),
)
def test_no_jumping_of_the_clock_makes_a_storm_or_a_silence(
    steps, catch_up, is_rule, jitter
):
    one = timer(catch_up, HOURLY if is_rule else None, jitter=jitter)
    past, now = seen(one, NOON), NOON
    for step in steps:
        now += step
        times, past = fired(one, past, now)
        assert len(times) <= (100 if catch_up is CatchUp.ALL else 1)
        assert len({one.key(at) for at in times}) == len(times)
        assert now < due(one, past, now) <= now + 2 * HOUR


# ---- late on purpose


def test_jitter_is_the_same_whenever_it_is_asked_and_another_for_each_fire():
    one = timer(jitter=600)
    late = [
        fire.at - fire.nominal for fire in following(one, seen(one, NOON), NOON, 50)
    ]
    assert all(0 <= seconds < 600 for seconds in late)
    assert len(set(late)) > 40
    again = following(one, seen(one, NOON), NOON, 50)
    assert [fire.at - fire.nominal for fire in again] == late
    other = replace(one, name="other")
    theirs = following(other, seen(other, NOON), NOON, 50)
    assert [fire.at - fire.nominal for fire in theirs] != late


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("rule", [HOURLY, None])
def test_jitter_moves_no_beat_and_leaves_out_no_fire(catch_up, rule):
    one = timer(catch_up, rule, jitter=3600)
    past, times = Past(last=NOON, rule=one.rule), []
    for look in range(12 * 180):
        more, past = fired(one, past, NOON + look * 20.0)
        times += more
    assert times[:10] == [NOON + (n + 1) * HOUR for n in range(10)]


def test_jitter_longer_than_the_gap_between_fires_keeps_their_order():
    one = timer(rule=cron("* * * * *", "UTC"), jitter=86400)
    at = [fire.at for fire in following(one, seen(one, NOON), NOON, 60)]
    assert at == sorted(at)


# ---- paused


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("rule", [HOURLY, None])
def test_what_was_due_while_it_was_paused_is_over_and_the_beat_goes_on(catch_up, rule):
    one = timer(catch_up, rule)
    past = Past(last=NOON, rule=one.rule, paused=NOON + 60)
    past = resumed(one, past, NOON + DAY + 600)
    assert past.paused is None
    assert due(one, past, NOON + DAY + 600) == NOON + DAY + HOUR


# ---- what is remembered


def test_the_newest_fires_are_remembered_each_once():
    fires = ()
    for n in range(30):
        fires = noted(fires, Fire(float(n), float(n), "sent", f"http://h/q/q/{n}"))
    fires = noted(fires, Fire(29.0, 40.0, "sent", "http://h/q/q/29"))
    assert [fire.nominal for fire in fires] == [float(n) for n in range(10, 30)]
    assert fires[-1].tried == 40.0


def test_a_timer_without_new_settings_is_as_it_was():
    assert (PERIODIC.jitter, PERIODIC.catch_up) == (0, CatchUp.LAST)
    assert PERIODIC.overlap is Overlap.QUEUE
    assert PERIODIC.key(4600.0) == "timer/t/4600.0"
