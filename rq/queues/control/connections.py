"""All connections to the control socket of a queue: how many, of whom, who has to go; and
how fast their requests are taken, when folders are made slower than they come.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rq.access.connection_limits import ConnectionLimits, Those
from rq.errors import BadInput, Busy
from rq.queues.control.connection import Connection
from rq.queues.control.replies import Replies
from rq.spool import LAG_BYTES, LAG_MESSAGES, Spool

MOST = 1000
MOST_WAITING = 4000  # of RQ's own that wait for leases; they are not among the others
FRAME_SECONDS = 30.0  # from the first byte of a frame to its last
TAKE_SECONDS = 60.0  # that an asker may take nothing of a reply
_LATE = "the rest of the request did not come in time"
UNTAKEN = 256 * 1024 * 1024  # bytes of replies that all askers may leave untaken


class Connections:
    """The connections that are open."""

    def __init__(self, on_minder_gone: Callable[[], None]) -> None:
        """`on_minder_gone` is called when the last one ends that is our parent's."""
        self._on_minder_gone = on_minder_gone
        self._open: set[Connection] = set()
        self._limits = ConnectionLimits(MOST)
        self._waiting: set[Connection] = set()
        self.requests = 0  # requests that only a process could answer

    @property
    def are_idle(self) -> bool:
        """Whether none waits for anything, or is about to ask."""
        now = time.monotonic()
        return all(connection.rests(now) for connection in self._open)

    def let_go(self) -> bool:
        """Hang up on all, who are idle; False once a request was found that is answered
        first."""
        return all(connection.let_go() for connection in list(self._open))

    @property
    def minded(self) -> bool:
        """Whether a connection is that of our parent."""
        return any(connection.minded for connection in self._open)

    def add(self, connection: Connection) -> None:
        """Take one in; with one too many, another has to go."""
        self._open.add(connection)
        self._limits.add(connection.asker)
        if (excess := self._limits.excess(connection.asker)) is not None:
            self._make_room(connection, *excess)

    def _make_room(self, newest: Connection, most: int, whose: Those) -> None:
        """Hang up on the one of those that has asked nothing for longest, on others before
        RQ's own; if all wait for answers, on the newest."""
        others = self._open - {newest}
        idle = [other for other in others if other.idle and whose(other.asker)]
        victim = min(
            idle, key=lambda other: (other.asker.is_own, other.used), default=newest
        )
        victim.refuse(Busy(f"too many connections ({most})"))

    def remove(self, connection: Connection) -> None:
        """Forget one that has closed."""
        self._open.discard(connection)
        if connection not in self._waiting:
            self._limits.remove(connection.asker)
        if connection.minded and not self.minded:
            self._on_minder_gone()

    @contextlib.contextmanager
    def waiting(self, connection: Connection) -> Iterator[None]:
        """Leave one of RQ's own out of the count while it waits (for a lease, an end),
        so that a thousand of them keep no other out. Busy when too many wait."""
        if not connection.asker.is_own or connection.closed:
            yield
            return
        if len(self._waiting) >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} wait already: ask again, without `wait`")
        self._waiting.add(connection)
        self._limits.remove(connection.asker)
        try:
            yield
        finally:
            self._waiting.discard(connection)
            if not connection.closed:
                self._limits.add(connection.asker)

    def drop_silent(self) -> None:
        """Hang up on those that began a frame and do not end it, or take no replies."""
        now = time.monotonic()
        for connection in list(self._open):
            since = connection.partial_since
            if since and now - since > FRAME_SECONDS:
                connection.refuse(BadInput(_LATE))
            elif connection.owed and now - connection.taken > TAKE_SECONDS:
                connection.close()

    def relieve(self) -> None:
        """Hang up on those who take no replies, when all that they leave is too much
        memory: the most first, and others before RQ's own."""
        untaken = sum(connection.owed for connection in self._open)
        for connection in sorted(
            self._open,
            key=lambda connection: (not connection.asker.is_own, connection.owed),
            reverse=True,
        ):
            if untaken <= UNTAKEN:
                return
            untaken -= connection.owed
            connection.close()

    def close(self) -> None:
        """Send what can be sent, and hang up on all."""
        for connection in list(self._open):
            connection.minded = False
            connection.send_ready()
            connection.close()


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
        """Resume as many connections as folders were made."""
        number = len(self._paused)
        for _ in range(min(settled, number) if self.behind else number):
            self._paused.popleft().resume()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """The clients at the control socket: connections, replies to them, their pace."""

    connections: Connections
    replies: Replies
    pace: Pace
