"""Pauses that end by themselves: their files go when they are over.

Each queue goes on at that moment without being told. The file goes, too, so that a clock
that is put back does not pause it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rq import logs
from rq.config import admin
from rq.layout import Root

log = logging.getLogger(__name__)


class Pauses:
    """The pauses of a root that end by themselves."""

    def __init__(self, root: Root, wake: Callable[[str], None]) -> None:
        """`wake` tells a queue that something has changed."""
        self._root = root
        self._wake = wake
        self._soonest: float | None = None  # epoch seconds

    def look(self) -> None:
        """End what is over."""
        now = time.time()
        try:
            ends = admin.ends(self._root)
        except OSError as error:
            log.warning("pauses cannot be read now: %s", error)
            return
        for name, until in ends.items():
            if until <= now:
                self._end(name)
        self._soonest = min((at for at in ends.values() if at > now), default=None)

    def away(self) -> float | None:
        """Return in how many seconds the next one is over; None: none ends."""
        if self._soonest is None:
            return None
        return max(0.01, self._soonest - time.time())

    def _end(self, name: str) -> None:
        try:
            admin.resume(self._root, name)
        except OSError as error:  # it counts no more all the same
            log.warning("%s", logs.fields(queue=name, wanted="resume", reason=error))
        else:
            log.info("a pause is over: %s", logs.fields(queue=name))
        self._wake(name)
