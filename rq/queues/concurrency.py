"""Turns of a queue's loop, the tasks beside them, and its threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor


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
        """Wait until a turn is asked for, which then begins; all else that is ready
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
        """Whether a task waits until events are durable."""
        return bool(self._waiters)

    def tell_committed(self) -> None:
        """Wake the tasks that waited: all events so far are durable."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def tell_failed(self, error: Exception) -> None:
        """Fail the tasks that waited: what they wait for will not be durable."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)


log = logging.getLogger(__name__)


class Tasks:
    """Tasks of one loop; one that fails is logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._all: set[asyncio.Task[object]] = set()

    def __len__(self) -> int:
        return len(self._all)

    def spawn(self, work: Coroutine[object, None, object]) -> None:
        """Begin a task."""
        task = self._loop.create_task(work)
        self._all.add(task)
        task.add_done_callback(self._done)

    async def ended(self) -> None:
        """Wait until all have ended."""
        while self._all:
            await asyncio.wait(list(self._all))

    def _done(self, task: asyncio.Task[object]) -> None:
        self._all.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())


FILES, LOOKS = 8, 4  # threads


class ThreadPools:
    """`files` copies, hashes and syncs attachments; `looks` lists and reads folders."""

    def __init__(self) -> None:
        self.files = ThreadPoolExecutor(FILES, "rq-files")
        self.looks = ThreadPoolExecutor(LOOKS, "rq-looks")

    def close(self) -> None:
        """Start no more work, and wait for what runs."""
        for pool in (self.files, self.looks):
            pool.shutdown(cancel_futures=True)
