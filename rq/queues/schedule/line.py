"""Waiting messages of one priority and key, by (due, arrival), in little memory.

Most come in their order, and there may be a million of them: those stand in a row of plain
numbers, 24 bytes each, and become an `Item` when they are looked at. What comes out of order
stands in a heap, 72 bytes each, and with it the last of the row: one message for next year
must not send all others there.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

_FEW = 64  # items of which a row is not worth its while
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


class Row:
    """Items in their order, added at the end, taken from either end."""

    __slots__ = ("_begin", "_dues", "_ids", "_seqs", "first", "last")

    def __init__(self) -> None:
        self._dues, self._seqs = array("d"), array("q")
        self._ids: list[str] = []
        self._begin = 0  # those before have been taken
        self.first: Item | None = None
        self.last: Item | None = None

    def __len__(self) -> int:
        return len(self._ids) - self._begin

    def __iter__(self) -> Iterator[Item]:
        return map(self._at, range(self._begin, len(self._ids)))

    def _at(self, place: int) -> Item:
        return Item(self._dues[place], self._seqs[place], self._ids[place])

    def append(self, item: Item) -> bool:
        """Add the last; return whether it is the first, too."""
        due, seq, msg_id = self.last = item
        self._dues.append(due)
        self._seqs.append(seq)
        self._ids.append(msg_id)
        if self.first is not None:
            return False
        self.first = item
        return True

    def extend(self, items: Sequence[Item]) -> None:
        """Add items that are in their order, and come after all others."""
        dues, seqs, ids = zip(*items, strict=True)
        self._dues.extend(dues)
        self._seqs.extend(seqs)
        self._ids += ids
        self.last = items[-1]
        if self.first is None:
            self.first = items[0]

    def pop_first(self) -> None:
        self._ids[self._begin] = ""
        self._begin += 1
        if self._begin > _FEW and 2 * self._begin > len(self._ids):
            for column in (self._dues, self._seqs, self._ids):
                del column[: self._begin]
            self._begin = 0
        if self:
            self.first = self._at(self._begin)
        else:
            self.first = self.last = None

    def pop_last(self) -> None:
        for column in (self._dues, self._seqs, self._ids):
            del column[-1]
        if self:
            self.last = self._at(len(self._ids) - 1)
        else:
            self.first = self.last = None


class Line:
    """The messages of one key; those that are few have no row."""

    __slots__ = ("_heap", "_row")

    def __init__(self) -> None:
        self._heap: list[Item] = []
        self._row: Row | None = None

    def __len__(self) -> int:
        return len(self._heap) + (0 if self._row is None else len(self._row))

    def __iter__(self) -> Iterator[Item]:
        yield from self._heap
        yield from self._row or ()

    def first(self) -> Item:
        """Return the first; there has to be one."""
        row = self._row
        if row is None or row.first is None:
            return self._heap[0]
        return min(self._heap[0], row.first) if self._heap else row.first

    def add(self, item: Item) -> bool:
        """Add a message; return whether it may be the first now."""
        row = self._row
        if row is None:
            heapq.heappush(self._heap, item)
            if len(self._heap) > _FEW:
                self._begin_row()
            return True
        last = row.last
        if last is not None and last > item:
            heapq.heappush(self._heap, last)
            row.pop_last()
            last = row.last
        if last is None or last <= item:
            return row.append(item)
        heapq.heappush(self._heap, item)
        return True

    def pop(self) -> None:
        """Take out the first."""
        row = self._row
        if (
            row is None
            or row.first is None
            or (self._heap and self._heap[0] < row.first)
        ):
            heapq.heappop(self._heap)
        else:
            row.pop_first()

    def extend(self, items: list[Item]) -> None:
        """Add some of very many; `settle` has to follow."""
        items.sort()
        row = self._row
        if row is not None and (row.last is None or row.last <= items[0]):
            row.extend(items)
            return
        self._heap += items
        if row is None and len(self._heap) > _FEW:
            self._begin_row()

    def settle(self) -> None:
        """Bring those that came out of order into theirs."""
        heapq.heapify(self._heap)

    def _begin_row(self) -> None:
        self._row = Row()
        self._row.extend(sorted(self._heap))
        self._heap = []

    def in_order(self) -> Iterator[Item]:
        """Give all in their order; the first cost no more in a long line."""
        return heapq.merge(heap_order(self._heap), self._row or ())
