"""Clients of whom it is to be asked again who they are: a slice of the loop at a time, and
each before it is obeyed or answered again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from rq.broker.connection import SLICE, Connection


class Anew:
    """Asks of many clients who they are."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ask: Callable[[Connection], None]
    ) -> None:
        self._loop = loop
        self._ask = ask
        self._left: dict[int, Connection] = {}
        self._go_on_at: asyncio.Handle | None = None
        self._is_over = False

    def begin(self, connections: Mapping[int, Connection]) -> None:
        """Let none of them be anybody until it is asked."""
        for connection in connections.values():
            connection.principal = None
        self._left.update(connections)
        self._go_on_later()

    def settle(self, connection: Connection) -> None:
        """Ask now who a client is, if that is left to do."""
        if self._left.pop(connection.number, None) is not None:
            self._ask(connection)

    def forget(self, connection: Connection) -> None:
        """A client is gone, or known."""
        self._left.pop(connection.number, None)

    def close(self) -> None:
        """Ask of nobody any more."""
        self._is_over = True
        if self._go_on_at is not None:
            self._go_on_at.cancel()

    def _go_on_later(self) -> None:
        if self._go_on_at is None and self._left and not self._is_over:
            self._go_on_at = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._go_on_at = None
        until = time.monotonic() + SLICE
        while self._left and time.monotonic() < until:
            self._ask(self._left.popitem()[1])
        self._go_on_later()
