"""Clients that have not come in yet: for how long they may be there, and how many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rq.broker.connection import Connection
from rq.config.broker import BrokerConfig
from rq.logs import fields

_SHARE = 4  # of how many places strangers hold one
_FEWEST = 10  # places of strangers, however few there are
_PAUSE = 1.0  # seconds between two looks, so that a crowd is ended, and logged, at once

log = logging.getLogger(__name__)


class Strangers:
    """Ends who does not come in, so that those who could find a place."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerConfig],
        places: Callable[[], int],
    ) -> None:
        """`places`: how many clients may be there, strangers or not."""
        self._loop = loop
        self._places = places
        self._settings = settings
        # With the time of the loop when each came, or its password was taken back; the
        # oldest first.
        self._there: dict[int, tuple[Connection, float]] = {}
        self._look_at: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._there)

    def note(self, connection: Connection) -> None:
        """Count a client, or do so no more, by whether it has come in."""
        if connection.principal is not None:
            self._there.pop(connection.number, None)
        elif connection.number not in self._there:
            self._there[connection.number] = connection, self._loop.time()
            self._look_later()

    def lost(self, connection: Connection) -> None:
        """A client is gone."""
        self._there.pop(connection.number, None)

    def make_room(self) -> bool:
        """Let one more come, at the cost of the one who does nothing for longest; False:
        the passwords of all are being looked at."""
        if len(self) < max(_FEWEST, self._places() // _SHARE):
            return True
        idle = (each for each, _ in self._there.values() if not each.waits)
        oldest = next(idle, None)
        if oldest is None:
            return False
        oldest.kill()
        return True

    def close(self) -> None:
        """End nobody any more."""
        if self._look_at is not None:
            self._look_at.cancel()

    def _look_later(self) -> None:
        """Look again when the time of the first is over."""
        most = self._settings().login_timeout
        if self._look_at is not None or not self._there or not most:
            return
        _, since = next(iter(self._there.values()))
        wait = max(_PAUSE, since + most - self._loop.time())
        self._look_at = self._loop.call_later(wait, self._look)

    def _look(self) -> None:
        self._look_at = None
        now, ended = self._loop.time(), 0
        for connection, since in list(self._there.values()):
            if since + self._settings().login_timeout > now:
                break
            if connection.waits:  # for the answer to its password
                self.lost(connection)
                self.note(connection)
            else:
                connection.kill()
                ended += 1
        if ended:
            log.info("clients that did not log in are closed: %s", fields(number=ended))
        self._look_later()
