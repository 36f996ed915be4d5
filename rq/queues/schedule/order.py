"""The order of waiting messages, in one place: among those that are due (priority, fair
turn of key, due, arrival). None runs before it is due, whatever its priority.

Messages of one priority take turns by key (`Rotation`); of one key the first is the first
by (due, arrival). A queue without turns has one key. A key has its place among the others
from when one of its messages is due. It is the last again after each message of it that
runs, and loses its place when none is due any more.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, takewhile
from typing import NamedTuple

from rq.message.rank import Rank
from rq.queues.schedule.line import Item, Line, heap_order

_MANY = 10_000  # messages of very many that are objects at a time, at a start
_JOINS = 2000  # keys that get their place in one look
_SLACK = 64  # moments in `_coming` that count no more before it is made again


class Rotation:
    """Waiting messages of one priority."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}  # by key; none is empty
        # Keys with a message that is due, the next one first. Ordered: the first is found
        # at once, however many have gone before.
        self._places: OrderedDict[str, None] = OrderedDict()
        # Each key that has no place, with its first message; others count no more.
        self._coming: list[tuple[Item, str]] = []
        self._placed: list[tuple[Item, str]] = []  # the same of each that has one

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._lines.values())

    # ---- coming

    def add(self, item: Item, key: str) -> None:
        line = self._line(key)
        if not line.add(item) or line.first() != item:
            return
        if key in self._places:
            self._is_placed(item, key)
        else:
            self._comes(item, key)

    def put_first(self, item: Item, key: str) -> None:
        """Put a message back whose turn it still is."""
        line = self._line(key)
        line.add(item)
        self._places[key] = None
        self._places.move_to_end(key, last=False)
        self._is_placed(line.first(), key)

    def _line(self, key: str) -> Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line()
        return line

    def has_had_turn(self, key: str) -> None:
        """Put the others of a key off to its next turn."""
        if key in self._places:
            self._places.move_to_end(key)

    def extend(self, items: list[Item], key: str) -> None:
        """Add some of very many; `settle` has to follow."""
        self._line(key).extend(items)

    def settle(self) -> None:
        for line in self._lines.values():
            line.settle()
        self._come_anew()

    def _comes(self, item: Item, key: str) -> None:
        heapq.heappush(self._coming, (item, key))
        if len(self._coming) > 2 * len(self._lines) + _SLACK:
            self._come_anew()

    def _come_anew(self) -> None:
        without = self._lines.keys() - self._places.keys()
        self._coming = [(self._lines[key].first(), key) for key in without]
        heapq.heapify(self._coming)

    def _is_placed(self, item: Item, key: str) -> None:
        heapq.heappush(self._placed, (item, key))
        if len(self._placed) > 2 * len(self._places) + _SLACK:
            self._placed = [(self._lines[key].first(), key) for key in self._places]
            heapq.heapify(self._placed)

    def _next_to_come(self) -> tuple[Item, str] | None:
        """Return the key that gets its place next, with its first message."""
        while self._coming:
            item, key = self._coming[0]
            line = self._lines.get(key)
            if line and line.first() == item and key not in self._places:
                return item, key
            heapq.heappop(self._coming)
        return None

    def _give_places(self, now: float) -> None:
        """Give a place to keys of which a message is due, in that order."""
        for _ in range(_JOINS):
            coming = self._next_to_come()
            if coming is None or coming[0].due > now:
                return
            item, key = heapq.heappop(self._coming)
            self._places[key] = None
            self._is_placed(item, key)

    # ---- going

    def first(self, now: float) -> Item | None:
        """Return the message whose turn it is; None: none is due."""
        if self._coming:
            self._give_places(now)
        while self._places:
            key = next(iter(self._places))
            item = self._lines[key].first()
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
            self._comes(self._lines[key].first(), key)

    def _pop(self, key: str) -> bool:
        """Take out the first of a key; return whether others are left."""
        line = self._lines[key]
        line.pop()
        if not line:
            del self._lines[key]
            self._places.pop(key, None)
        elif key in self._places:
            self._is_placed(line.first(), key)
        return bool(line)

    # ---- looking

    def soonest(self) -> Item | None:
        """Return of the keys without a place the message that is due first."""
        coming = self._next_to_come()
        return None if coming is None else coming[0]

    def oldest(self) -> Item | None:
        """Return the message with the smallest due of the keys that have a place."""
        while self._placed:
            item, key = self._placed[0]
            if key in self._places and self._lines[key].first() == item:
                return item
            heapq.heappop(self._placed)
        return None

    def in_order(self, now: float, valid: Callable[[Item], bool]) -> Iterator[Item]:
        """Give those that are due in the order in which they would run; nothing may
        change meanwhile. The first cost no more however many keys there are."""
        line: Iterator[Item]
        lines: dict[str, Iterator[Item]] = {}
        todo = deque[Iterator[Item]]()
        for key in chain(self._places, self._joining(now)):
            if key not in lines:
                lines[key] = line = filter(valid, _due(self._lines[key], now))
                for item in islice(line, 1):
                    yield item
                    todo.append(line)
        while todo:
            line = todo.popleft()
            for item in islice(line, 1):
                yield item
                todo.append(line)

    def _joining(self, now: float) -> Iterator[str]:
        """Give the keys that would get their place now."""
        pairs = takewhile(lambda pair: pair[0].due <= now, self._to_come())
        return (key for _, key in pairs)

    def _to_come(self) -> Iterator[tuple[Item, str]]:
        """Give each key without a place, with its first message, by that."""
        for item, key in heap_order(self._coming):
            line = self._lines.get(key)
            if line and line.first() == item and key not in self._places:
                yield item, key

    def later(self, now: float) -> Iterator[Item]:
        """Give those that are not due yet, the soonest first. The first cost no more
        however many keys have none that is due."""
        begun = _Merged()
        for key in self._places:
            begun.add(_later(self._lines[key], now))
        keys = set[str]()
        for item, key in self._to_come():
            yield from begun.before(item)
            if key not in keys:
                keys.add(key)
                begun.add(_later(self._lines[key], now))
        yield from begun.before(None)


class _Merged:
    """Lines of messages, each in its order, as one; a line may be added when it begins."""

    def __init__(self) -> None:
        self._heads: list[tuple[Item, int, Iterator[Item]]] = []
        self._number = 0

    def add(self, line: Iterator[Item]) -> None:
        for item in islice(line, 1):
            self._number += 1  # tells lines with equal heads apart
            heapq.heappush(self._heads, (item, self._number, line))

    def before(self, end: Item | None) -> Iterator[Item]:
        """Give those before an item; None: all."""
        while self._heads and (end is None or self._heads[0][0] < end):
            item, _, line = heapq.heappop(self._heads)
            yield item
            self.add(line)


def _due(line: Line, now: float) -> Iterator[Item]:
    return takewhile(lambda item: item.due <= now, line.in_order())


def _later(line: Line, now: float) -> Iterator[Item]:
    return (item for item in line.in_order() if item.due > now)


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
        """Put the others with a rank off to the next turn of their key."""
        self._of(rank.priority).has_had_turn(rank.fair or "")

    def fill(self, items: Iterable[tuple[Item, Rank]]) -> None:
        """Add many at once."""
        coming = iter(items)
        while some := list(islice(coming, _MANY)):
            by_rank: defaultdict[Rank, list[Item]] = defaultdict(list)
            for item, rank in some:
                by_rank[rank].append(item)
            for rank, of_rank in by_rank.items():
                self._of(rank.priority).extend(of_rank, rank.fair or "")
        for rotation in self._by_priority.values():
            rotation.settle()

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
