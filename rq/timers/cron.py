"""When a cron expression fires in a time zone, as Debian's cron does; pure.

At a change of clocks, what names its hour fires once: moved behind a gap, and at the
first of two equal times. What repeats (its minute or hour begins with `*`) goes on in
real time.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from cronsim import CronSim, CronSimError

from rq import zones
from rq.errors import BadInput

NEVER = math.inf
DEFAULT_ZONE = "UTC"
NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
_LONGEST = 500  # characters of an expression
_SPAN = 3600.0  # seconds that are looked back at first
_WIDER = 8.0
_STEP = 1  # second from a moment to the first that a fire may be at


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields of cron in a zone of the IANA database; checked by `cron`."""

    expression: str  # as written
    zone: str

    def after(self, moment: float) -> float:
        """Return the first fire after `moment`, NEVER when none is in 50 years."""
        return _after(self, moment)

    def all_after(self, moment: float) -> Iterator[float]:
        """Give the fires after `moment`, one after the other."""
        return _from(self, moment)

    def until(self, base: float, now: float, most: int) -> list[float]:
        """Return the newest fires in (base, now], `most` of them at most, oldest first."""
        span = _SPAN
        while True:
            start = max(base, now - span)
            moments = list(
                itertools.takewhile(lambda at: at <= now, _from(self, start))
            )
            if len(moments) >= most or start == base:
                return moments[-most:]
            span *= _WIDER


def cron(expression: str, zone: str) -> Cron:
    """Return the rule; BadInput says which part of it is wrong."""
    tz = zones.zone(zone)
    fields = _expanded(expression)
    is_cron = fields.isascii() and fields.replace("\t", " ").isprintable()
    if len(expression) > _LONGEST or not is_cron or len(fields.split()) != _FIELDS:
        raise BadInput(
            f"{expression!r:.80} has not the five fields of cron, minute hour day month "
            f"weekday; it may also be one of {', '.join(NAMED)}"
        )
    try:
        CronSim(fields, datetime.fromtimestamp(0, tz))
    except CronSimError as error:
        raise BadInput(f"{expression!r:.80} is no time of cron: {error}") from None
    rule = Cron(expression, zone)
    if rule.after(0.0) == NEVER:
        raise BadInput(f"{expression!r:.80} never comes")
    return rule


def local(moment: float, zone: str) -> str:
    """Return a moment as a clock in a zone shows it, with what the zone is called then,
    and how far it is from UTC."""
    clock = datetime.fromtimestamp(math.floor(moment), zones.zone(zone))
    if zone == DEFAULT_ZONE:
        return f"{clock:%Y-%m-%d %H:%M:%S} UTC"
    return f"{clock:%Y-%m-%d %H:%M:%S %Z} (UTC{clock.isoformat()[19:]})"


def _expanded(expression: str) -> str:
    return NAMED.get(expression.strip(" \t").lower(), expression)


@functools.lru_cache(maxsize=4096)
def _after(rule: Cron, moment: float) -> float:
    return next(_from(rule, moment), NEVER)


def _from(rule: Cron, moment: float) -> Iterator[float]:
    """Give the fires after `moment`."""
    fields = _expanded(rule.expression)
    minute, hour, *_ = fields.split()
    names_its_hour = minute[0] != "*" and hour[0] != "*"
    give = _by_the_clock if names_its_hour else _in_real_time
    return give(fields, moment, zones.zone(rule.zone))


def _by_the_clock(fields: str, moment: float, zone: tzinfo) -> Iterator[float]:
    """Where clocks are put back, cronsim begins with the first of two equal times, which
    may be before `moment`; and what a gap moves may fall on another."""
    for wall in CronSim(fields, datetime.fromtimestamp(moment, zone)):
        at = wall.timestamp()
        if at > moment:
            moment = at
            yield at


def _in_real_time(fields: str, moment: float, zone: tzinfo) -> Iterator[float]:
    """What repeats fires whenever the clock of the zone shows a time of it. cronsim
    reckons without the zone here, as far as its offset stays: it steps by hours, and
    would lose some where clocks change by half of one."""
    while True:
        offset = _offset(math.floor(moment) + _STEP, zone)
        at = NEVER
        for wall in CronSim(fields, _wall(moment + offset)):
            at = wall.replace(tzinfo=UTC).timestamp() - offset
            if _offset(at, zone) != offset:
                break
            moment = at
            yield at
        else:
            return
        moment = _change(moment + _STEP, at, zone) - _STEP


def _wall(seconds: float) -> datetime:
    return datetime.fromtimestamp(math.floor(seconds), UTC).replace(tzinfo=None)


def _offset(moment: float, zone: tzinfo) -> float:
    """Return the seconds that a zone is ahead of UTC."""
    ahead = datetime.fromtimestamp(moment, zone).utcoffset()
    return ahead.total_seconds() if ahead else 0.0


def _change(before: float, after: float, zone: tzinfo) -> float:
    """Return when the offset changes between two moments that have different ones."""
    low, high = math.floor(before), math.ceil(after)
    offset = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(middle, zone) == offset:
            low = middle
        else:
            high = middle
    return high
