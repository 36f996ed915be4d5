"""All connections to the control socket of a queue: how many, of whom, who has to go."""

from __future__ import annotations

import time
from collections.abc import Callable

from rq.access.connection_limits import ConnectionLimits, Those
from rq.errors import BadInput, Busy
from rq.queues.control.connection import Connection

MOST = 1000
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

    @property
    def minded(self) -> bool:
        """Whether somebody holds a connection as our parent."""
        return any(connection.minded for connection in self._open)

    def add(self, connection: Connection) -> None:
        """Take one in; with one too many, another has to go."""
        self._open.add(connection)
        self._limits.add(connection.asker)
        if (excess := self._limits.excess(connection.asker)) is not None:
            self._make_room(connection, *excess)

    def _make_room(self, newest: Connection, most: int, whose: Those) -> None:
        """Hang up on whoever of those has asked nothing for longest, on others before
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
        self._limits.remove(connection.asker)
        if connection.minded and not self.minded:
            self._on_minder_gone()

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
