"""A rate of starts: a bucket of tokens, of which each start takes one.

A bucket holds `burst` tokens and is filled at the rate. It is known by the moment when it
will be full. A clock that goes forward fills it, and no more; one that goes back leaves
it empty at worst.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

PERIODS: Mapping[str, float] = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_ABOUT = 1e-6  # seconds; a line of the journal tells microseconds
_LONGER = 60.0  # seconds that the past is looked at beyond what fills a bucket


@dataclass(frozen=True, slots=True)
class Rate:
    """The setting `rate` of a queue."""

    each: float  # seconds that one token takes
    burst: int

    @property
    def fill(self) -> float:
        """How many seconds fill an empty bucket."""
        return self.each * self.burst

    @property
    def looks_back(self) -> float:
        """How many seconds of the past tell how full it is."""
        return self.fill + min(self.fill, _LONGER)


def rate(setting: Mapping[str, Any]) -> Rate | None:
    """Return the rate of a checked setting; None for a queue without."""
    if not setting:
        return None
    return Rate(PERIODS[setting["per"]] / setting["number"], setting["burst"])


class Bucket:
    """The tokens of one queue."""

    def __init__(self, rate: Rate, full_at: float = -inf) -> None:
        self.rate = rate
        self._full_at = full_at  # epoch seconds

    def next(self, now: float) -> float:
        """Return when a message may start: now, or later."""
        self._full_at = min(self._full_at, now + self.rate.fill)
        at = self._full_at - self.rate.fill + self.rate.each
        return now if at <= now + _ABOUT else at

    def take(self, now: float) -> None:
        """Take a token for a message that starts."""
        self._full_at = max(self._full_at, now) + self.rate.each

    def other(self, rate: Rate, now: float) -> Bucket:
        """Return a bucket of another rate with as many tokens as it can hold of these."""
        missing = max(0.0, self._full_at - now) / self.rate.each
        tokens = min(max(0.0, self.rate.burst - missing), rate.burst)
        return Bucket(rate, now + (rate.burst - tokens) * rate.each)


def rebuilt(
    rate: Rate, since: float | None, starts: Iterable[float], now: float
) -> Bucket:
    """Return the bucket after these starts, the first first. `since`: of what was before
    nothing is known, so it was empty then; None: nothing was. It never holds more than it
    did when the queue ended."""
    bucket = Bucket(rate, -inf if since is None else since + rate.fill)
    for at in starts:
        bucket.take(min(at, now))
    return bucket
