"""Whether the clock may be believed by what makes things old.

A clock that is wrong is mostly put right soon. So for an hour after it has jumped nothing
grows old: neither while the queue runs, nor when it starts with a clock that is far ahead
of the one it last saw.
"""

from __future__ import annotations

AWAY = 86400.0  # seconds that may pass between two runs and nobody wonders


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
