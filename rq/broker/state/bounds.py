"""How much one command may have at a time, so that no client holds the others up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

MOST_JOBS = 1_000  # of one GETJOB, QPEEK or page of a scan
MOST_MOVED = 2_000  # of one NACK, ENQUEUE or DEQUEUE
MOST_MESSAGES = 5_000  # of all other commands, also of BUSYLOOP
MOST_QUEUES = 1_000  # that one command names
MOST_ROWS = 1_000  # of one answer about the broker itself
MOST_PATTERNS = 16  # of one CONFIG GET
LONGEST_WORD = 1024  # bytes: of a name, and of all else that is no body
MOST_NUMBER = 2**63 - 2**53  # that a node may say: to add to it needs no more bytes
_BYTES = 8 * 1024 * 1024  # of bodies in one answer; the one that passes it is the last

Item = TypeVar("Item")


class Room:
    """The room for bodies in one answer."""

    def __init__(self) -> None:
        self.left = _BYTES

    def take(
        self, items: Iterable[Item], count: int, size: Callable[[Item], int]
    ) -> Iterator[Item]:
        """Give up to `count` items, as long as there is room."""
        for item in islice(items, max(0, count)):
            if self.left <= 0:
                return
            self.left -= size(item)
            yield item
