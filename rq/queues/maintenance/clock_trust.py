"""Whether the clock may be believed by what makes things old.

A wrong clock is mostly put right soon. So nothing expires for an hour after a jump of
the clock, or after a start with a clock that is far ahead of the time last seen.
"""

from __future__ import annotations

AWAY = 86400.0  # seconds; a longer time between two runs counts as a jump of the clock


class ClockTrust:
    """Trust in the clock; `steady` are seconds of a clock that nobody sets."""

    def __init__(self, seen: float, now: float, steady: float, hour: float) -> None:
        """`seen` is the last time, in epoch seconds, that an earlier run believed."""
        self.seen = seen
        self._hour = hour
        self._until = steady + hour if now - seen > AWAY else steady

    def jumped(self, steady: float) -> None:
        """Believe nothing for an hour."""
        self._until = steady + self._hour

    def holds(self, now: float, steady: float) -> bool:
        """Return whether the time `now` may make things old."""
        if steady < self._until:
            return False
        self.seen = now
        return True
