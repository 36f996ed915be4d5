"""Tasks beside the turns of a queue's loop, for whose end a stop can wait."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TypeVar

SLICE = 0.005  # seconds of work between turns

Item = TypeVar("Item")

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


async def in_slices(
    items: Iterable[Item],
    act: Callable[[Item], object],
    between: Callable[[], None] = lambda: None,
) -> None:
    """Act on each item, and let the loop have its turn every few milliseconds.

    Much may happen in such a turn: `act` has to look again. `between` is called before it.
    """
    until = time.perf_counter() + SLICE
    for item in items:
        act(item)
        if time.perf_counter() > until:
            between()
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE
