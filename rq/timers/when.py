"""When a timer fires: what it has done, and the time, give the fire that is next; pure.

A fire is named by its nominal time. It is due then, or later by its jitter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rq import back_off
from rq.timers.cron import NEVER
from rq.timers.past import Past
from rq.timers.rule import CatchUp, Timer

ON_TIME = 30.0  # seconds; a fire no later than this was not missed
MOST_MADE_UP = 100


@dataclass(frozen=True, slots=True)
class Next:
    """A fire that is to come: its nominal time, and when it is due."""

    nominal: float
    at: float


def due(timer: Timer, past: Past, now: float) -> float:
    """Return when the timer fires next, or is tried again."""
    if past.failures:
        return min(past.tried, now) + back_off.delay(past.failures)
    if past.begun is not None:
        return now
    return upcoming(timer, past, now).at


def nominal(timer: Timer, past: Past, now: float) -> float:
    """Return the time of the fire that is due: while it is not known whether it was
    sent, the same one, also after a crash."""
    return upcoming(timer, past, now).nominal if past.begun is None else past.begun


def upcoming(timer: Timer, past: Past, now: float) -> Next:
    """Return the fire that is next, by what the timer is to catch up."""
    base = past.base
    if base is None:
        return Next(now, now)
    if _moves_the_next(timer):
        first = _next(timer, min(base, now))
        if first.at > now:
            return first
        late = first.at - first.nominal
        return Next(_kept(first.nominal, now - late), first.at)
    return _by_rule(timer, base, now)


def following(timer: Timer, past: Past, now: float, count: int) -> list[Next]:
    """Return the next fires, `count` of them at most."""
    fire = upcoming(timer, past, now)
    fires: list[Next] = []
    while len(fires) < count and fire.nominal < NEVER:
        fires.append(fire)
        fire = _next(timer, fire.nominal)
    return fires


def counts_from(timer: Timer, begun: float, sent: float) -> float:
    """Return what the fires after one count from: its time, unless its beat begins again
    because its message was accepted much later."""
    if not _moves_the_next(timer):
        return begun
    late = timer.late_by(begun, timer.period)
    return _kept(begun, max(begun, sent - late))


def without_missed(timer: Timer, past: Past, now: float) -> Past:
    """Return the past of a timer that makes up for nothing, once a fire is too late."""
    base = past.base
    if timer.catch_up is not CatchUp.NONE or base is None or past.begun is not None:
        return past
    late = _due_until(timer, base, now - ON_TIME, 1)
    if not late:
        return past
    why = past.error or "it could not be sent when it was due"
    said = f"skipped: {why}"
    return replace(past, over=late[-1], failures=0, error="", result=said)


def resumed(timer: Timer, past: Past, now: float) -> Past:
    """Return the past of a timer that was paused: what was due meanwhile is over, and
    its beat goes on."""
    over = past.over
    if past.base is not None:
        over = max(_until(timer, past.base, now, 1), default=over)
    return replace(past, paused=None, failures=0, over=over)


def _moves_the_next(timer: Timer) -> bool:
    """Whether a late fire moves those after it: a period counts from the last one, as
    long as which were missed does not matter."""
    return timer.cron is None and timer.catch_up is CatchUp.LAST


def _kept(planned: float, now: float) -> float:
    return planned if 0 <= now - planned <= ON_TIME else now


def _by_rule(timer: Timer, base: float, now: float) -> Next:
    """Return the next of fires whose times nothing moves."""
    first = _next(timer, base)
    if first.at > now:
        return first
    most = MOST_MADE_UP if timer.catch_up is CatchUp.ALL else 1
    fire = _fire(timer, _due_until(timer, base, now, most)[0])
    is_missed = timer.catch_up is CatchUp.NONE and now - fire.at > ON_TIME
    return _next(timer, fire.nominal) if is_missed else fire


def _due_until(timer: Timer, base: float, now: float, most: int) -> list[float]:
    """Return the newest fires after `base` that are due by `now`, oldest first."""
    if _next(timer, base).at > now:
        return []
    # Of those whose time has come the newest alone may wait for its jitter.
    moments = _until(timer, base, now, most + 1)
    return [moment for moment in moments if _fire(timer, moment).at <= now][-most:]


def _next(timer: Timer, base: float) -> Next:
    return _fire(timer, _after(timer, base))


def _fire(timer: Timer, moment: float) -> Next:
    if not timer.jitter or moment == NEVER:
        return Next(moment, moment)
    return Next(moment, moment + timer.late_by(moment, _after(timer, moment) - moment))


def _after(timer: Timer, base: float) -> float:
    return timer.cron.after(base) if timer.cron else base + timer.period


def _until(timer: Timer, base: float, now: float, most: int) -> list[float]:
    """Return the newest times in (base, now], oldest first."""
    if timer.cron:
        return timer.cron.until(base, now, most)
    count = max(0, math.floor((now - base) / timer.period))
    return [base + nth * timer.period for nth in range(count + 1)[1:][-most:]]
