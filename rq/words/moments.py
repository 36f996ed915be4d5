"""Times and durations as people type them; pure."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, tzinfo

from rq.errors import BadInput

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LONGEST = 1000 * 365 * 86400.0  # seconds
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)", re.ASCII)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+|\d+(?:\.\d+)?", re.ASCII)
_CLOCK = re.compile(r"\d{1,2}:\d{2}", re.ASCII)
_FORMS = "+10m, epoch seconds or 2026-01-02T03:04"
_EPOCH = re.compile(r"@?\d{9,11}(?:\.\d+)?", re.ASCII)


def duration(text: str) -> float:
    """Return the seconds in `90`, `10m`, `1h30m`.

    >>> [duration(t) for t in ("90", "10m", "1h30m", "0.5s")]
    [90.0, 600.0, 5400.0, 0.5]
    """
    if not _DURATION.fullmatch(text):
        raise BadInput(f"not a duration: {text!r:.80}; say 90, 10m, 1h30m or 2d")
    seconds = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text))
    if (
        seconds > _LONGEST
    ):  # also what is no number any more: JSON would make it nothing
        raise BadInput(f"too long a time: {text!r:.80}; it is a thousand years at most")
    return seconds


def due(text: str, now: float, zone: tzinfo | None = None) -> float:
    """Return the epoch seconds meant by `now`, `+10m`, `10m`, an epoch or ISO 8601.

    ISO 8601 that names no zone is a time in `zone`; None is where this program runs.

    >>> due("+10m", 1000.0), due("1h", 1000.0), due("@1700000000", 0.0), due("now", 5.0)
    (1600.0, 4600.0, 1700000000.0, 5.0)
    """
    if text == "now":
        return now
    if _EPOCH.fullmatch(text):
        return float(text.removeprefix("@"))
    if _DURATION.fullmatch(text.removeprefix("+")):
        return now + duration(text.removeprefix("+"))
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise BadInput(f"not a time: {text!r:.80}; say {_FORMS}") from None


def until(text: str, now: float, zone: tzinfo | None = None) -> float:
    """As `due`; also the next time that a clock in `zone` shows `18:00`.

    >>> from datetime import UTC
    >>> until("18:00", 0.0, UTC), until("00:00", 60.0, UTC), until("+10m", 1000.0)
    (64800.0, 86400.0, 1600.0)
    """
    clock = text.strip()
    try:
        if not _CLOCK.fullmatch(clock):
            return due(clock, now, zone)
        at = time.fromisoformat(clock.zfill(5))
    except (BadInput, ValueError):
        raise BadInput(f"not a time: {text!r:.80}; say 18:00, {_FORMS}") from None
    today = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
    then = datetime.combine(today.date(), at)
    if then <= today:
        then += timedelta(days=1)
    return then.replace(tzinfo=zone).timestamp()


def since(text: str, now: float, zone: tzinfo | None = None) -> float:
    """Return the epoch seconds of a moment that is past: an age (`90`, `2h`), the last
    time that a clock in `zone` showed `18:00`, an epoch or ISO 8601.

    >>> from datetime import UTC
    >>> since("2h", 10000.0), since("18:00", 86400.0, UTC), since("1970-01-01T00:01Z", 90)
    (2800.0, 64800.0, 60.0)
    """
    past = text.strip().removesuffix(" ago")
    if _DURATION.fullmatch(past) and not _EPOCH.fullmatch(past):
        return now - duration(past)
    if _CLOCK.fullmatch(past):
        next_time = datetime.fromtimestamp(until(past, now, zone), zone)
        return (next_time - timedelta(days=1)).timestamp()
    try:
        return due(past, now, zone)
    except BadInput:
        forms = "2h, 18:00, epoch seconds or 2026-01-02T03:04"
        raise BadInput(f"not a time that is past: {text!r:.80}; say {forms}") from None
