"""Waits for owners that do not answer: one of all who wait at a queue looks for them."""

from __future__ import annotations

import asyncio

from rq.errors import OutcomeUnknown, RQError, Unreachable
from rq.lines.owners import Owners

_FIRST, _LONGEST = 0.1, 2.0  # seconds between two looks


class Returns:
    """The owners whose return somebody waits for."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners
        self._looks: dict[str, asyncio.Task[None]] = {}  # by queue
        self._waiting: dict[str, int] = {}  # how many do

    async def wait(self, queue: str, seconds: float, gone: asyncio.Event) -> None:
        """Wait until the owner of a queue answers again, so long at most, or until
        `gone` is set."""
        if queue not in self._looks:
            self._looks[queue] = asyncio.ensure_future(self._look(queue))
        self._waiting[queue] = self._waiting.get(queue, 0) + 1
        left = asyncio.ensure_future(gone.wait())
        try:
            await asyncio.wait(
                {self._looks[queue], left},
                timeout=seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            left.cancel()
            self._waiting[queue] -= 1
            self._forget_if_unwanted(queue)

    def _forget_if_unwanted(self, queue: str) -> None:
        if not self._waiting[queue]:
            del self._waiting[queue]
            self._looks.pop(queue).cancel()

    async def _look(self, queue: str) -> None:
        pause = _FIRST
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST)
            try:
                await self._owners.ask(queue, "ping")
            except (Unreachable, OutcomeUnknown):
                continue
            except RQError:
                return  # who waits asks it, and is told what is wrong
            return
