"""What asks for the turns of a queue's loop, and waits for what a turn does."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Asks for turns: those who ask before the next one begins share it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wanted = False
        self._sleeper: asyncio.Future[None] | None = None  # of the loop, when it waits
        self._waiters: list[asyncio.Future[None]] = []

    def ask(self) -> None:
        """Ask for a turn."""
        self._wanted = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def ask_in(self, seconds: float) -> asyncio.TimerHandle:
        """Ask for a turn in some seconds, unless that is cancelled."""
        return self._loop.call_later(seconds, self.ask)

    async def wanted(self) -> None:
        """Wait until somebody asks for a turn, which then begins; all else that is ready
        has its chance before."""
        if self._wanted:
            await asyncio.sleep(0)
        else:
            self._sleeper = self._loop.create_future()
            await self._sleeper
        self._wanted = False

    # ---- what a turn does

    def committed(self) -> asyncio.Future[None]:
        """Return what is done when all events so far are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(future)
        self.ask()
        return future

    @property
    def awaited(self) -> bool:
        """Whether somebody waits until events are durable."""
        return bool(self._waiters)

    def tell_committed(self) -> None:
        """Let those go on who waited: all events so far are durable."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def tell_failed(self, error: Exception) -> None:
        """Let those fail who waited: what they wait for will not be durable."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
