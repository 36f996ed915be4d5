"""Threads for what may take long: reading and writing files, and searching in them.

Each has its own, so that a slow disk or a crowd of searches holds up nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from rq.errors import Busy

T = TypeVar("T")

SEARCHES = 2  # at once
WAITING = 8  # that may wait for their turn
_FILES = 8


class Pools:
    """The threads of one web process."""

    def __init__(self) -> None:
        self._files = ThreadPoolExecutor(_FILES, "rq-file")
        self._searches = ThreadPoolExecutor(SEARCHES, "rq-search")
        self._searching = 0

    def file(self, act: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Do something with a file."""
        return asyncio.get_running_loop().run_in_executor(self._files, act, *args)

    def search(self, act: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Search, when it is its turn; Busy when too many wait already."""
        if self._searching >= SEARCHES + WAITING:
            raise Busy(
                f"{SEARCHES} searches run and {WAITING} wait: try again in a moment"
            )
        self._searching += 1
        loop = asyncio.get_running_loop()
        done = self._searches.submit(act, *args)
        # Count until the thread ends: a client that hangs up does not end its search.
        done.add_done_callback(lambda _: loop.call_soon_threadsafe(self._searched))
        return asyncio.wrap_future(done)

    def _searched(self) -> None:
        self._searching -= 1
