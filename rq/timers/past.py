"""What a timer has done, which outlives a restart, and when it is due again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from pathlib import Path

from rq import back_off, config
from rq.errors import BadConfig, CannotRead
from rq.timers.timer import Timer

ON_TIME = 30.0  # a fire no later than this keeps the beat of the one before

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Past:
    """What a timer has done; kept over restarts."""

    last: float | None = None  # epoch seconds of the fire that the next counts from
    result: str = ""  # of the last attempt: sent ID, skipped, or an error
    error: str = ""
    failures: int = 0  # in a row; a failed fire is tried again
    tried: float = 0.0  # epoch seconds
    # Of the fire that was begun and of which it is not known whether it was sent: its
    # time, which names its message.
    begun: float | None = None


def due(timer: Timer, past: Past, now: float) -> float:
    """Return when the timer fires next; never more than a period from now."""
    if past.failures:
        return min(past.tried, now) + back_off.delay(past.failures)
    if past.last is None or past.begun is not None:
        return now
    return min(past.last, now) + timer.period


def not_ahead(past: Past, now: float) -> Past:
    """Return what a timer has done as a clock shows it that was put back since: what it
    did lies `now` and not ahead, or it would not be due before the clock is there again.
    """
    last = past.last if past.last is None else min(past.last, now)
    tried = min(past.tried, now)
    unchanged = (last, tried) == (past.last, past.tried)
    return past if unchanged else replace(past, last=last, tried=tried)


def beat(timer: Timer, past: Past, now: float) -> float:
    """Return the time that the fire after this one counts from.

    The old beat is kept while it is kept up with; after a stop or a jump of the clock
    the timer fires once and begins a new one.
    """
    if past.last is None:
        return now
    return _kept(past.last + timer.period, now)


def nominal(timer: Timer, past: Past, now: float) -> float:
    """Return the time of the fire that is due: while it is not known whether it was
    sent, the same one, also after a crash."""
    return beat(timer, past, now) if past.begun is None else past.begun


def counts_from(begun: float, sent: float) -> float:
    """Return what the next fire counts from: `begun`, unless its message was accepted
    much later than that."""
    return _kept(begun, max(begun, sent))


def _kept(planned: float, now: float) -> float:
    return planned if 0 <= now - planned <= ON_TIME else now


def read_state(path: Path) -> dict[str, Past]:
    """Return what the timers of a root have done; empty when there is nothing that can
    be used. CannotRead: to begin without it would fire them all anew."""
    try:
        saved = config.read_json(path).get("timers", {})
        names = {field.name for field in fields(Past)}
        return {
            name: Past(**{key: saved[name][key] for key in names & saved[name].keys()})
            for name in saved
        }
    except CannotRead:
        raise
    except (BadConfig, TypeError, AttributeError) as error:
        if path.exists():
            log.error(
                "what the timers did before cannot be read, so each starts anew: %s",
                error,
            )
        return {}
