"""What is told of timers, and of each fire."""

from __future__ import annotations

from rq.replies import FireView, MissView, TimerMiss, TimerRow
from rq.timers.fires import OfTimer
from rq.timers.rows import Fired, Missed
from rq.timers.rule import Timer
from rq.timers.watch import last_success

MOST = 20  # fires, and spans of missed ones


def settings(timer: Timer) -> TimerRow:
    """Return what the file of a timer says, defaults included."""
    return {
        "name": timer.name,
        "period": timer.period or None,
        "cron": timer.cron.expression if timer.cron else None,
        "timezone": timer.cron.zone if timer.cron else None,
        "jitter": timer.jitter,
        "catch_up": str(timer.catch_up),
        "overlap": str(timer.overlap),
        "expect": timer.within or None,
        "dest": timer.dest,
    }


def outcome(held: OfTimer) -> TimerRow:
    """Return what became of the last fire of a timer, and when one ended well."""
    last = held.last_fire()
    return {
        "fired": last.tried if last else None,
        "outcome": last.outcome.state if last else "",
        "outcome_why": last.outcome.text if last and last.is_bad else "",
        "last_success": last_success(held),
        "missed": held.missed,
    }


def fires(held: OfTimer) -> list[FireView]:
    """Return the last fires, the newest first."""
    rows = [row for row in held.rows.values() if isinstance(row, Fired)]
    return [_fire(row) for row in rows[: -MOST - 1 : -1]]


def misses(held: OfTimer) -> list[MissView]:
    """Return the last spans of missed fires, the newest first."""
    rows = [row for row in held.rows.values() if isinstance(row, Missed)]
    return [_miss(row) for row in rows[: -MOST - 1 : -1]]


def miss_of(row: Missed, queue: str) -> TimerMiss:
    """Return a span of missed fires among those of all timers."""
    return {**_miss(row), "timer": row.timer, "queue": queue}


def _fire(row: Fired) -> FireView:
    return {
        "number": row.number,
        "nominal": row.nominal,
        "planned": row.planned,
        "tried": row.tried,
        "said": row.said,
        "url": row.msg,
        "outcome": row.outcome.state,
        "cause": row.outcome.cause,
        "text": row.outcome.text,
        "ended": row.outcome.ended,
    }


def _miss(row: Missed) -> MissView:
    return {
        "number": row.number,
        "from": row.span.first,
        "to": row.span.to,
        "count": row.span.count,
        "more": row.span.more,
        "why": str(row.why),
        "text": row.text,
        "at": row.at,
    }
