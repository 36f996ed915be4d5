"""A waiting message as the schedule sees it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

_Row = TypeVar("_Row", bound=tuple[object, ...])


class Item(NamedTuple):
    """A waiting message; sorts by when it may run."""

    due: float  # epoch seconds
    seq: int  # order of arrival
    msg_id: str


def heap_order(heap: Sequence[_Row]) -> Iterator[_Row]:
    """Give the rows of a heap in their order; the first cost no more in a large one."""
    todo = [(heap[0], 0)] if heap else []
    while todo:
        row, at = heapq.heappop(todo)
        yield row
        for below in (2 * at + 1, 2 * at + 2):
            if below < len(heap):
                heapq.heappush(todo, (heap[below], below))
