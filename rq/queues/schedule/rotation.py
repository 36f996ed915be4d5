"""Rotation: messages of one priority take turns by key; of one key the first is the first by
(due, arrival). A queue without turns has one key.

A key has its place among the others from when one of its messages is due. It is the last
again after each message of it that runs, and loses its place when none is due any more.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import takewhile

from rq.queues.schedule.item import Item, heap_order

_JOINS = 2000  # keys that get their place in one look
_SLACK = 64  # moments in `_coming` that count no more before it is made anew


class Rotation:
    """Waiting messages of one priority."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[Item]] = {}  # by key; none is empty
        # Keys with a message that is due, the next one first. Ordered: the first is found
        # at once, however many have gone before.
        self._places: OrderedDict[str, None] = OrderedDict()
        # Each key that has no place, with its first message; others count no more.
        self._coming: list[tuple[Item, str]] = []

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def __iter__(self) -> Iterator[Item]:
        for heap in self._heaps.values():
            yield from heap

    # ---- coming

    def add(self, item: Item, key: str) -> None:
        heap = self._heaps.setdefault(key, [])
        heapq.heappush(heap, item)
        if heap[0] is item and key not in self._places:
            self._comes(item, key)

    def put_first(self, item: Item, key: str) -> None:
        """Put a message back whose turn it still is."""
        heapq.heappush(self._heaps.setdefault(key, []), item)
        self._places[key] = None
        self._places.move_to_end(key, last=False)

    def has_had_turn(self, key: str) -> None:
        """Let the others of a key wait for its next turn."""
        if key in self._places:
            self._places.move_to_end(key)

    def extend(self, items: list[Item], key: str) -> None:
        """Add many at once; `heapify` has to follow."""
        self._heaps.setdefault(key, []).extend(items)

    def heapify(self) -> None:
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._come_anew()

    def _comes(self, item: Item, key: str) -> None:
        heapq.heappush(self._coming, (item, key))
        if len(self._coming) > 2 * len(self._heaps) + _SLACK:
            self._come_anew()

    def _come_anew(self) -> None:
        without = self._heaps.keys() - self._places.keys()
        self._coming = [(self._heaps[key][0], key) for key in without]
        heapq.heapify(self._coming)

    def _next_to_come(self) -> tuple[Item, str] | None:
        """Return the key that gets its place next, with its first message."""
        while self._coming:
            item, key = self._coming[0]
            heap = self._heaps.get(key)
            if heap is not None and heap[0] is item and key not in self._places:
                return item, key
            heapq.heappop(self._coming)
        return None

    def _give_places(self, now: float) -> None:
        """Give a place to keys of which a message is due, in that order."""
        for _ in range(_JOINS):
            coming = self._next_to_come()
            if coming is None or coming[0].due > now:
                return
            heapq.heappop(self._coming)
            self._places[coming[1]] = None

    # ---- going

    def first(self, now: float) -> Item | None:
        """Return the message whose turn it is; None: none is due."""
        if self._coming:
            self._give_places(now)
        while self._places:
            key = next(iter(self._places))
            item = self._heaps[key][0]
            if item.due <= now:
                return item
            del self._places[key]  # the clock went back, or one has gone that was due
            self._comes(item, key)
        return None

    def take(self) -> None:
        """Take out what `first` has returned: its key has had its turn."""
        key = next(iter(self._places))
        if self._pop(key) and len(self._places) > 1:
            self._places.move_to_end(key)

    def drop(self) -> None:
        """As `take`, of a message that does not run: it is still the turn of its key."""
        self._pop(next(iter(self._places)))

    def drop_coming(self) -> None:
        """Take out the message that `soonest` has returned."""
        _, key = heapq.heappop(self._coming)
        if self._pop(key):
            self._comes(self._heaps[key][0], key)

    def _pop(self, key: str) -> bool:
        """Take out the first of a key; return whether others are left."""
        heap = self._heaps[key]
        heapq.heappop(heap)
        if not heap:
            del self._heaps[key]
            self._places.pop(key, None)
        return bool(heap)

    # ---- looking

    def soonest(self) -> Item | None:
        """Return of the keys without a place the message that is due first."""
        coming = self._next_to_come()
        return None if coming is None else coming[0]

    def firsts(self) -> Iterator[Item]:
        """Give the first message of each key that has a place."""
        return (self._heaps[key][0] for key in self._places)

    def in_order(self, now: float, valid: Callable[[Item], bool]) -> Iterator[Item]:
        """Give those that are due in the order in which they would run; nothing may
        change meanwhile."""
        keys = [*self._places, *(key for _, key in self._joining(now))]
        lines: dict[str, Iterator[Item]] = {}
        todo = deque(dict.fromkeys(keys))
        while todo:
            key = todo.popleft()
            if key not in lines:
                lines[key] = filter(valid, _due(self._heaps[key], now))
            item = next(lines[key], None)
            if item is not None:
                yield item
                todo.append(key)

    def _joining(self, now: float) -> list[tuple[Item, str]]:
        without = ((self._heaps[k][0], k) for k in self._heaps if k not in self._places)
        return sorted(pair for pair in without if pair[0].due <= now)

    def later(self, now: float) -> Iterator[Item]:
        """Give those that are not due yet, the soonest first."""
        lines = (_later(heap, now) for heap in self._heaps.values())
        return heapq.merge(*lines) if len(self._heaps) > 1 else next(lines, iter(()))


def _due(heap: list[Item], now: float) -> Iterator[Item]:
    return takewhile(lambda item: item.due <= now, heap_order(heap))


def _later(heap: list[Item], now: float) -> Iterator[Item]:
    return (item for item in heap_order(heap) if item.due > now)
