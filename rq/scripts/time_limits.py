"""Ends scripts that take too long, or of which nothing is heard for too long.

One timer serves all that run in a process. It goes by the monotonic clock, which no
change of the wall clock moves, and fires after the sockets and pipes of its turn were
read: what a script said in time is heard, however long the process stood still.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rq.message import limits as rules
from rq.message.limits import Limits, Over, Used
from rq.proc import rlimits
from rq.proc.spawn import Termination

_LATER = 3600.0  # seconds; nothing is to be looked at
_OFTEN = 0.05  # seconds between two looks, at least
_THIN = 0.2  # seconds between two looks at the size of a log
_SHARE = 4  # a silent script's output is looked at so often in a heartbeat


@dataclass(slots=True, eq=False, kw_only=True)
class Timed:
    """A script at work whose time is limited. Its moments are monotonic."""

    limits: Limits
    kill: Callable[[Over], None]
    printed: Callable[[], int]  # bytes of its output so far
    # Keeps what it prints small; returns whether that is not all.
    thin: Callable[[], bool] | None = None
    began: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)
    seen: int = 0  # of its output

    def hear(self) -> None:
        """It has said something."""
        self.heard = time.monotonic()

    def look(self, now: float) -> float:
        """Return when to look again. Output is a sign of life, too."""
        moments = []
        if self.thin is not None:
            moments.append(now + (_OFTEN if self.thin() else _THIN))
        if self.limits.timeout is not None:
            moments.append(self.began + self.limits.timeout)
        if self.limits.heartbeat is not None:
            size = self.printed()
            if size != self.seen:
                self.seen, self.heard = size, now
            beat = self.limits.heartbeat
            moments.append(min(self.heard + beat, now + beat / _SHARE))
        return min(moments, default=now + _LATER)


class TimeLimits:
    """All scripts of a process whose time is limited."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._all: set[Timed] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0

    def begin(self, timed: Timed) -> Timed:
        """Look after a script from now on, until `end`."""
        self._all.add(timed)
        timed.seen = timed.printed() if timed.limits.heartbeat is not None else 0
        self._set(timed.look(time.monotonic()))
        return timed

    def end(self, timed: Timed | None) -> None:
        """Look after it no more."""
        if timed is not None:
            self._all.discard(timed)

    def _set(self, moment: float) -> None:
        if self._timer is not None:
            if self._at <= moment:
                return
            self._timer.cancel()
        self._at = moment
        self._timer = self._loop.call_later(
            max(_OFTEN, moment - time.monotonic()), self._look
        )

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        moments = []
        for timed in list(self._all):
            again = timed.look(now)
            over = rules.over_time(timed.limits, now - timed.began, now - timed.heard)
            if over is None:
                moments.append(again)
            else:
                self._all.discard(timed)
                timed.kill(over)
        if moments:
            self._set(min(moments))


def over_resources(
    limits: Limits, how: Termination, ran: float, oom_kills: int = 0
) -> Over | None:
    """Return which limit that the kernel keeps has ended a script; None: none has.
    `oom_kills`: processes of its control group that were ended for want of memory."""
    if not limits.of_processes:
        return None
    used = Used(
        exit=how.exit,
        signal=how.signal,
        ran=ran,
        cpu=None if how.cpu_us is None else how.cpu_us / 1e6,
        peak=rlimits.peak_of(how.max_rss),
        oom_kills=oom_kills,
    )
    return rules.over_resources(limits, used)
