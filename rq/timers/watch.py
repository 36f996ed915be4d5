"""Which timers a person should look at: one that missed fires, whose last message failed,
or of which none has succeeded for longer than its file expects; pure.

The first two are over when a person says so (`rq timer ack`), which names the last line
about the timer that was there then; what comes later counts again. A last message that
failed is over, too, when it was acknowledged in its queue, or when the next one is fine.
What is missed because the timer is paused, or by its `overlap`, is meant so. A success
that is expected and does not come is over when one comes; a pause does not excuse it, for
pauses are forgotten.
"""

from __future__ import annotations

from rq.replies import TimerTrouble
from rq.timers.fires import OfTimer
from rq.timers.missed import MEANT
from rq.timers.past import Past
from rq.timers.rows import Fired, Missed
from rq.timers.rule import Timer


def trouble(
    timer: Timer, held: OfTimer, past: Past, seen: int, now: float
) -> TimerTrouble | None:
    """Return what is wrong with a timer; `seen` is the last line that was acknowledged."""
    spans = _spans(held, seen)
    failed = _failed(held.last_fire(), seen)
    late = overdue(timer, held, past, now)
    if not spans and failed is None and late is None:
        return None
    return {
        "missed": sum(row.span.count for row in spans),
        "more": any(row.span.more for row in spans),
        "why": str(spans[-1].why) if spans else "",
        "failed": failed.msg if failed else "",
        "failed_why": failed.outcome.text or failed.outcome.cause if failed else "",
        "overdue": late,
    }


def overdue(timer: Timer, held: OfTimer, past: Past, now: float) -> float | None:
    """Return since when a success has been expected for too long: the last one, or since
    one is expected at all; None: all is well."""
    if not timer.within:
        return None
    since = max(past.expected or 0.0, last_success(held) or 0.0)
    return since if now - since > timer.within else None


def last_success(held: OfTimer) -> float | None:
    """Return when a message of a timer ended well, in epoch seconds."""
    success = held.success
    return success.outcome.ended or success.tried if success else None


def _spans(held: OfTimer, seen: int) -> list[Missed]:
    return [
        row
        for row in held.rows.values()
        if isinstance(row, Missed) and row.newest > seen and row.why not in MEANT
    ]


def _failed(last: Fired | None, seen: int) -> Fired | None:
    if last is None or not last.is_bad or last.newest <= seen:
        return None
    return None if last.outcome.acknowledged else last
