"""How long a lease lasts, on this machine's clock: pure.

Seconds travel, never times. They are counted from when the request was sent that granted
them, so the lease ends here no later than at the queue.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_RENEW, _STOP = 1 / 3, 2 / 3  # shares of a lease


def now() -> float:
    """Return the seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Term:
    """A lease's time; all in seconds, `sent` as `now` gives them.

    >>> term = Term(100.0, 60)
    >>> term.renew_at, term.stop_at, term.ends_at
    (120.0, 140.0, 160.0)
    """

    sent: float  # when the request was sent that granted it
    seconds: float

    @property
    def renew_at(self) -> float:
        """When to ask for more."""
        return self.sent + self.seconds * _RENEW

    @property
    def stop_at(self) -> float:
        """When to end the work, if nobody has granted more."""
        return self.sent + self.seconds * _STOP

    @property
    def ends_at(self) -> float:
        """When the queue may give the message to somebody else."""
        return self.sent + self.seconds
