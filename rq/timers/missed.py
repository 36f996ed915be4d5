"""Which fires a timer has missed, counted; pure.

A fire is missed when its time has passed and no message was sent for it: RQ was down, a
person had paused the timer, its queue took nothing, an earlier message had not ended.
`catch_up` may send one message for the newest of many: the others are missed all the same.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum

from rq.timers.cron import Cron
from rq.timers.past import Past
from rq.timers.rule import Timer

MOST_COUNTED = 10_000  # fires of cron; beyond that a span says "or more"
_TRIED_LATELY = 120.0  # seconds; tries are a minute apart at most
_ALMOST = 1e-6  # periods, for sums of fractions


class Why(StrEnum):
    """Why fires were missed."""

    DOWN = "down"  # RQ, or the queue's process
    PAUSED = "paused"  # the timer, by a person
    OVERLAP = "overlap"  # an earlier message had not ended
    REFUSED = "refused"  # the queue took no message
    NO_QUEUE = "no queue"


# No operator has to look at these: a person, or the timer's file, wanted it so.
MEANT = frozenset({Why.PAUSED, Why.OVERLAP})


@dataclass(frozen=True, slots=True)
class Span:
    """Fires that were missed one after the other."""

    first: float  # epoch seconds
    to: float  # epoch seconds of the last
    count: int
    more: bool = False  # there are more than were counted


def before(timer: Timer, base: float | None, nominal: float) -> Span | None:
    """Return the fires after `base` that the one at `nominal` leaves behind."""
    if base is None:
        return None
    if timer.cron:
        return _of_cron(timer.cron, base, nominal, is_last_in=False)
    return _of_period(timer.period, base, _periods(timer, base, nominal) - 1)


def until(timer: Timer, base: float | None, last: float) -> Span | None:
    """Return the fires after `base`, that at `last` with them."""
    if base is None:
        return None
    if timer.cron:
        return _of_cron(timer.cron, base, last, is_last_in=True)
    return _of_period(timer.period, base, _periods(timer, base, last))


def planned(timer: Timer, base: float | None, nominal: float) -> float:
    """Return when a fire should have been: one of a period that is made up for has the
    time at which that is done for its own."""
    if timer.cron or base is None:
        return nominal
    return base + max(1, _periods(timer, base, nominal)) * timer.period


def why(past: Past, now: float) -> tuple[Why, str]:
    """Return why what is due `now` was not sent before, and in a sentence."""
    if past.paused is not None:
        return Why.PAUSED, ""
    if past.failures and now - past.tried <= _TRIED_LATELY:
        return Why(past.why or Why.REFUSED), past.error or past.result
    return Why.DOWN, ""


def _periods(timer: Timer, base: float, moment: float) -> int:
    return math.floor((moment - base) / timer.period + _ALMOST)


def _of_period(period: int, base: float, count: int) -> Span | None:
    if count < 1:
        return None
    return Span(base + period, base + count * period, count)


def _of_cron(rule: Cron, base: float, end: float, *, is_last_in: bool) -> Span | None:
    """Return the fires between; cron's are at whole seconds."""
    latest = end if is_last_in else end - 0.5
    moments = itertools.takewhile(lambda at: at <= latest, rule.all_after(base))
    counted = list(itertools.islice(moments, MOST_COUNTED))
    if not counted:
        return None
    if next(moments, None) is None:
        return Span(counted[0], counted[-1], len(counted))
    return Span(counted[0], rule.until(base, latest, 1)[-1], len(counted), more=True)
