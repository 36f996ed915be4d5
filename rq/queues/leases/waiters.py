"""Those who wait for something that they can lease: first come, first served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rq.proc.slices import Slice
from rq.queues.leases.grants import Granted, Wanted

SLICE = 0.01  # seconds of claims in one turn


@dataclass(slots=True, eq=False)
class Waiter:
    """A client that waits."""

    wanted: Wanted
    ended: asyncio.Future[None]
    granted: list[Granted] = field(default_factory=list)
    lost: bool = False  # he has hung up
    impatient: bool = False  # he waits only until all that is due was looked at

    def end(self) -> None:
        """Answer him with what there is."""
        if not self.ended.done():
            self.ended.set_result(None)

    def lose(self) -> None:
        """Take note that he has hung up."""
        self.lost = True
        self.end()


class Waiters:
    """All who wait for leases of one queue."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        claim: Callable[[Wanted], list[Granted]],
    ) -> None:
        """`claim` hands out what is due, perhaps not all that was wanted."""
        self._loop = loop
        self._claim = claim
        # As they came; `_all` has those, too, who wait for news alone.
        self._all: dict[Waiter, None] = {}
        self._hungry: dict[Waiter, None] = {}

    @property
    def hungry(self) -> bool:
        """Whether a client waits for a lease, and not for news alone."""
        return bool(self._hungry)

    async def wait(self, waiter: Waiter, seconds: float) -> None:
        """Wait until something is leased to him, `end` is called, or for so long."""
        self._all[waiter] = None
        if waiter.wanted.count:
            self._hungry[waiter] = None
        timer = self._loop.call_later(seconds, waiter.end)
        try:
            await waiter.ended
        finally:
            timer.cancel()
            self._leave(waiter)

    def _leave(self, waiter: Waiter) -> None:
        self._all.pop(waiter, None)
        self._hungry.pop(waiter, None)

    def serve(self) -> bool:
        """Lease what is due to those who wait; return whether more may be due."""
        turn = Slice(SLICE)
        for waiter in list(self._hungry):
            if waiter.ended.done():
                continue
            waiter.granted = self._claim(waiter.wanted)
            if not waiter.granted:
                return False
            self._leave(waiter)
            waiter.end()
            if turn.is_over:
                return True
        return False

    def end_impatient(self) -> None:
        """Answer those that wait for no message to come."""
        for waiter in list(self._hungry):
            if waiter.impatient:
                waiter.end()

    def call(self, by: str) -> None:
        """Answer those that wait under a name: there is news for them."""
        for waiter in list(self._all):
            if waiter.wanted.by == by:
                waiter.end()

    def end(self) -> None:
        """Answer all."""
        for waiter in list(self._all):
            waiter.end()
