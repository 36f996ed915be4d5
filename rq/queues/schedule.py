"""Which message runs next: by (due, arrival), not two of one exclusion key at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Item(NamedTuple):
    """A waiting message; sorts by when it may run."""

    due: float  # epoch seconds
    seq: int  # order of arrival
    msg_id: str


class Waiting:
    """Messages in que, soonest first. An item whose message has moved on or changed its
    due since is dropped when it is met: `valid` tells."""

    def __init__(self, valid: Callable[[Item], bool]) -> None:
        self._valid = valid
        self._heap: list[Item] = []
        self._held: dict[str, list[Item]] = {}

    def fill(self, items: Iterable[Item]) -> None:
        """Add many at once."""
        self._heap.extend(items)
        heapq.heapify(self._heap)

    def add(self, item: Item) -> None:
        heapq.heappush(self._heap, item)

    def next_due(
        self, now: float, key_of: Callable[[str], str | None], busy: Iterable[str]
    ) -> tuple[str | None, float | None]:
        """Return (message to claim now, None) or (None, when to look again).

        A message whose exclusion key is `busy` is held until `release` of that key.
        """
        heap = self._heap
        while heap:
            first = heap[0]
            if not self._valid(first):
                heapq.heappop(heap)
                continue
            if first.due > now:
                return None, first.due
            key = key_of(first.msg_id)
            heapq.heappop(heap)
            if key is None or key not in busy:
                return first.msg_id, None
            self._held.setdefault(key, []).append(first)
        return None, None

    def release(self, key: str) -> None:
        """Let messages that waited for an exclusion key run again."""
        for item in self._held.pop(key, ()):
            heapq.heappush(self._heap, item)

    def release_all(self) -> None:
        for key in list(self._held):
            self.release(key)

    def first_due(self) -> float | None:
        """Return the smallest due of all that wait; None when nothing waits."""
        dues = [item.due for held in self._held.values() for item in held[:1]]
        while self._heap and not self._valid(self._heap[0]):
            heapq.heappop(self._heap)
        if self._heap:
            dues.append(self._heap[0].due)
        return min(dues, default=None)
