"""What goes on beside the turns of a queue's loop, so that a stop can wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """Tasks of one loop; one that fails is logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._all: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._all)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a task."""
        task = self._loop.create_task(work)
        self._all.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._all.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())
