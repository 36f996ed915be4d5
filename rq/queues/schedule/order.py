"""The order of waiting messages, in one place: among those that are due (priority, fair
turn of key, due, arrival). None runs before it is due, whatever its priority."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from rq.message.rank import Rank
from rq.queues.schedule.item import Item
from rq.queues.schedule.rotation import Rotation

Valid = Callable[[Item, int], bool]  # whether an item with this priority still waits


class First(NamedTuple):
    """A message that comes first, with all others of its priority."""

    item: Item
    priority: int
    rotation: Rotation


class Order:
    """Waiting messages of one queue, or of those that wait for one key."""

    def __init__(self) -> None:
        self._by_priority: dict[int, Rotation] = {}  # the greatest first

    def __bool__(self) -> bool:
        return any(self._by_priority.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_priority.values()))

    def __iter__(self) -> Iterator[Item]:
        for rotation in self._by_priority.values():
            yield from rotation

    def add(self, item: Item, rank: Rank) -> None:
        rotation = self._by_priority.get(rank.priority)
        if rotation is None:
            rotation = self._of(rank.priority)
        rotation.add(item, rank.fair or "")

    def put_first(self, item: Item, rank: Rank) -> None:
        """Put a message back whose turn it still is, of its priority."""
        self._of(rank.priority).put_first(item, rank.fair or "")

    def has_had_turn(self, rank: Rank) -> None:
        """Let the others with a rank wait for the next turn of their key."""
        self._of(rank.priority).has_had_turn(rank.fair or "")

    def fill(self, items: Iterable[tuple[Item, Rank]]) -> None:
        """Add many at once."""
        by_rank: defaultdict[Rank, list[Item]] = defaultdict(list)
        for item, rank in items:
            by_rank[rank].append(item)
        for rank, of_rank in by_rank.items():
            self._of(rank.priority).extend(of_rank, rank.fair or "")
        for rotation in self._by_priority.values():
            rotation.heapify()

    def _of(self, priority: int) -> Rotation:
        rotation = self._by_priority.get(priority)
        if rotation is None:
            rotation = self._by_priority[priority] = Rotation()
            self._by_priority = dict(sorted(self._by_priority.items(), reverse=True))
        return rotation

    # ---- what comes first

    def first(self, now: float) -> First | None:
        """Return the message that is to run first of those that are due."""
        for priority, rotation in self._by_priority.items():
            item = rotation.first(now)
            if item is not None:
                return First(item, priority, rotation)
        return None

    def soonest(self) -> First | None:
        """Return the message that is due first of those whose key has no place yet."""
        firsts = (
            First(item, priority, rotation)
            for priority, rotation in self._by_priority.items()
            if (item := rotation.soonest()) is not None
        )
        return min(firsts, default=None, key=_item)

    def oldest(self) -> Item | None:
        """Return the message with the smallest due."""
        lines = self._by_priority.values()
        firsts = chain.from_iterable((line.oldest(), line.soonest()) for line in lines)
        return min((item for item in firsts if item is not None), default=None)

    # ---- in their order

    def due(self, now: float, valid: Valid) -> Iterator[Item]:
        """Give those that are due in the order in which they would run; nothing may
        change meanwhile."""
        for priority, rotation in self._by_priority.items():
            yield from rotation.in_order(now, _with(valid, priority))

    def later(self, now: float, valid: Valid) -> Iterator[Item]:
        """Give those that are not due, the soonest first."""
        lines = [
            filter(_with(valid, priority), rotation.later(now))
            for priority, rotation in self._by_priority.items()
        ]
        yield from heapq.merge(*lines)


def _item(first: First) -> Item:
    return first.item


def _with(valid: Valid, priority: int) -> Callable[[Item], bool]:
    return lambda item: valid(item, priority)
