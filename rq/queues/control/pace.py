"""How fast requests of a queue are taken, when folders are made slower than they come."""

from __future__ import annotations

import time
from collections import deque

from rq.queues.control.connection import Connection
from rq.spool import LAG_BYTES, LAG_MESSAGES, Spool


class Pace:
    """Pauses connections past half of the lag that is allowed."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._requested = 0.0  # monotonic: when the last request came
        self._paused: deque[Connection] = deque()

    def requested(self) -> None:
        """Take note that a request has come."""
        self._requested = time.monotonic()

    def busy(self, quiet: float) -> bool:
        """Whether a request came in the last `quiet` seconds, and folders may wait."""
        return time.monotonic() - self._requested < quiet and not self.behind

    @property
    def behind(self) -> bool:
        """Past half of the lag that is allowed."""
        spool = self._spool
        return spool.lag > LAG_MESSAGES // 2 or spool.lag_bytes > LAG_BYTES // 2

    def pause(self, connection: Connection) -> None:
        """Take no more requests of a connection until `resume`."""
        connection.pause()
        self._paused.append(connection)

    def resume(self, settled: int) -> None:
        """Let as many connections go on as folders were made."""
        number = len(self._paused)
        for _ in range(min(settled, number) if self.behind else number):
            self._paused.popleft().resume()
