"""Which timers a person should look at: pure rules."""

from dataclasses import replace

import pytest

from rq.replies import health
from rq.timers import rows, watch
from rq.timers.fires import OfTimer
from rq.timers.missed import Span, Why
from rq.timers.past import Past, with_rule
from rq.timers.rows import Fired, Missed, Outcome
from rq.timers.rule import Timer

NOW = 1_800_000_000.0
DAY = 86400.0
TIMER = Timer("t", 86400, "q", {})
EXPECTS = replace(TIMER, within=DAY)


def fired(number, state, **more):
    return Fired(
        number=number,
        newest=number,
        timer="t",
        nominal=NOW + number,
        planned=NOW + number,
        tried=NOW + number,
        said="sent",
        msg=f"http://h/q/q/{number}",
        outcome=Outcome(state=state, ended=NOW + number, **more),
    )


def missed(number, why, newest=0, count=3):
    return Missed(
        number=number,
        newest=newest or number,
        timer="t",
        span=Span(NOW, NOW + 2, count),
        why=why,
        text="",
        at=NOW,
    )


def held(*kept):
    timer = OfTimer()
    for row in kept:
        timer.take(rows.to_line(row))
        if isinstance(row, Fired):
            timer.take(rows.end_line(row))
    return timer


def trouble(*kept, seen=0, timer=TIMER, past=None, now=NOW):
    return watch.trouble(timer, held(*kept), past or Past(), seen, now)


def test_a_last_message_that_failed_is_trouble_until_it_is_seen_or_another_is_fine():
    failed = fired(2, "err", text="no space")
    said = trouble(fired(1, "done"), failed)
    assert (said["failed"], said["failed_why"]) == ("http://h/q/q/2", "no space")
    assert trouble(failed, seen=2) is None
    assert trouble(failed, seen=1)
    assert trouble(failed, fired(3, "done")) is None
    assert trouble(failed, fired(3, "que")) is None
    assert trouble(fired(2, "err", acknowledged=True)) is None


@pytest.mark.parametrize("why", Why)
def test_missed_fires_are_trouble_unless_a_person_wanted_it_so(why):
    said = trouble(missed(1, why))
    if why in (Why.PAUSED, Why.OVERLAP):
        assert said is None
    else:
        assert (said["missed"], said["why"]) == (3, why)
        assert trouble(missed(1, why), seen=1) is None
        assert trouble(missed(1, why, newest=4), seen=1)["missed"] == 3
    assert why in health.REASONS


def test_a_success_that_does_not_come_in_time_is_trouble_that_no_ack_ends():
    past = with_rule(Past(), EXPECTS, NOW)
    assert past.expected == NOW
    assert trouble(timer=EXPECTS, past=past, now=NOW + DAY) is None
    late = NOW + DAY + 1
    assert trouble(timer=EXPECTS, past=past, now=late, seen=99)["overdue"] == NOW
    fine = fired(1, "done")
    said = trouble(fine, timer=EXPECTS, past=past, now=late + 1)
    assert said["overdue"] == NOW + 1
    assert trouble(fine, timer=EXPECTS, past=past, now=NOW + DAY + 1) is None
    assert with_rule(past, TIMER, late).expected is None
    assert trouble(past=past, now=late) is None


def test_all_missed_fires_are_one_line_and_each_other_trouble_is_one():
    both = trouble(missed(1, Why.DOWN), fired(2, "err", text="no space"))
    late = trouble(timer=EXPECTS, past=Past(expected=NOW), now=NOW + 2 * DAY)
    told = [t.sentence for t in health.of_timers({"a": both, "b": both, "c": late})]
    assert told == [
        "timers/a failed at its last fire: no space: "
        "`rq timer show a`, then `rq timer ack a`",
        "timers/b failed at its last fire: no space: "
        "`rq timer show b`, then `rq timer ack b`",
        "timers/c expected a success, and none has come since 2027-01-15 08:00:00 UTC: "
        "`rq timer show c` says what became of its fires, `rq timer run c` sends one now",
        "2 timers (a, b) missed 6 fires (RQ was down): "
        "`rq timer ls` says which, `rq timer ack` that you know",
    ]
