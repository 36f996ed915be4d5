"""Tells of callbacks that hold an event loop too long; for tests, which set the limit.

Counted is the processor time of the loop's thread: how busy the machine is does not matter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from rq.logs import fields

LIMIT = "RQ_TURN_LIMIT"  # seconds, in the environment
HELD = "the loop was held"

log = logging.getLogger(__name__)


def watch() -> None:
    """Log every callback of this process's loops that takes longer than the limit, if the
    environment sets one."""
    wanted = os.environ.get(LIMIT)
    if wanted:
        _watch(float(wanted))


def _watch(most: float) -> None:
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        took = time.thread_time() - began
        if took > most:
            log.error("%s: %s", HELD, fields(seconds=round(took, 3), by=_name(self)))

    asyncio.Handle._run = timed  # type: ignore[method-assign]


def _name(handle: asyncio.Handle) -> str:
    """Return what a callback is called; of a task's step, the coroutine."""
    callback = getattr(handle, "_callback", None)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        callback = owner.get_coro()
    return str(getattr(callback, "__qualname__", callback))
