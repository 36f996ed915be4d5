"""Clients that have more to ask than one turn is for: they go on in slices."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

from rq.broker.connection import SLICE, Connection


class Backlog:
    """Lets clients go on with commands that have come, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[int, Connection] = OrderedDict()
        self._go_on_at: asyncio.Handle | None = None
        self._is_over = False

    def add(self, connection: Connection) -> None:
        """Let a client go on when those before it have."""
        self._waiting[connection.number] = connection
        if self._go_on_at is None and not self._is_over:
            self._go_on_at = self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Let nobody go on any more."""
        self._is_over = True
        if self._go_on_at is not None:
            self._go_on_at.cancel()

    def _go_on(self) -> None:
        self._go_on_at = None
        until = time.monotonic() + SLICE
        while self._waiting and time.monotonic() < until:
            _, connection = self._waiting.popitem(last=False)
            connection.go_on()
        if self._waiting and not self._is_over:
            self._go_on_at = self._loop.call_soon(self._go_on)


def send_some(touched: Mapping[int, Connection]) -> dict[int, Connection]:
    """Let answers of clients leave for some time; return those whose have not left."""
    until = time.monotonic() + SLICE
    for done, connection in enumerate(touched.values()):
        if time.monotonic() > until:
            return dict(islice(touched.items(), done, None))
        connection.send()
    return {}
