"""Which message runs next: by (due, arrival), not two of one exclusion key at once, and
none that waits for a host that is left alone."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rq.queues.holds import Holds

_AT_ONCE = 0.001  # seconds; a line of the journal tells microseconds
_LOOKS = 500  # messages put aside in one go: their files are read


class Item(NamedTuple):
    """A waiting message; sorts by when it may run."""

    due: float  # epoch seconds
    seq: int  # order of arrival
    msg_id: str


def turn(due: float, since: float, tried: bool, now: float) -> float:
    """Return when a message may run that has waited `since` then.

    A clock that was put back must not hold up for so long who was due when he came, nor
    who was told after a try how long to wait. Who asked for a moment gets that moment.
    """
    if due <= since + _AT_ONCE:
        return min(due, now)
    return min(due, now + due - since) if tried else due


class Waiting:
    """Messages in que, soonest first. An item whose message has moved on or changed its
    due since is dropped when it is met: `valid` tells."""

    def __init__(
        self, valid: Callable[[Item], bool], dest_of: Callable[[str], str]
    ) -> None:
        self._valid = valid
        self._dest_of = dest_of
        self._heap: list[Item] = []
        self._held: dict[str, list[Item]] = {}
        self._holds: Holds[Item] = Holds()

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
        self._try_held(now)
        looks = 0
        while heap:
            first = heap[0]
            if not self._valid(first):
                heapq.heappop(heap)
                continue
            if first.due > now:
                return None, self._sooner(first.due)
            if looks == _LOOKS:
                return None, now
            key = key_of(first.msg_id)
            heapq.heappop(heap)
            if key is not None and key in busy:
                self._held.setdefault(key, []).append(first)
            elif not self._waits_outside(first, now):
                return first.msg_id, None
            else:
                looks += 1
        return None, self._holds.next_look()

    # ---- what waits for something outside

    def has_room(self, dest: str, name: str, now: float) -> bool:
        """Whether messages for `dest` can wait for `name`: of both there is a limit."""
        return self._holds.has_room(dest, name, now)

    def hold(self, msg_id: str, dest: str, name: str, until: float) -> None:
        """Start no message for `dest` before `until`, nor any that waits for `name`:
        this one has tried."""
        self._holds.begin(msg_id, dest, name, until)

    def hold_no_longer(self, dest: str) -> None:
        """Let all go on that wait for what a message for `dest` waited for."""
        for item in self._holds.end(dest) if self._holds else ():
            heapq.heappush(self._heap, item)

    def held_for(self, msg_id: str) -> tuple[str, float] | None:
        """Return what a message waits for outside, and until when; None: nothing."""
        return self._holds.about(self._dest_of(msg_id)) if self._holds else None

    def held_outside(self) -> list[tuple[str, float]]:
        """Return what messages that are due wait for, and until when each."""
        return self._holds.awaited()

    def hurry(self, msg_id: str) -> None:
        """Try a message though what it waits for is left alone."""
        if self._holds:
            self._holds.hurry(self._dest_of(msg_id))

    def _waits_outside(self, item: Item, now: float) -> bool:
        if not self._holds:
            return False
        return self._holds.keeps(item, item.msg_id, self._dest_of(item.msg_id), now)

    def _try_held(self, now: float) -> None:
        if not self._holds:
            return
        for item in list(self._holds.ready(now)):
            heapq.heappush(self._heap, item)

    def _sooner(self, due: float) -> float:
        look = self._holds.next_look()
        return due if look is None else min(due, look)

    # ---- what waits for another message

    def release(self, key: str) -> None:
        """Let messages that waited for an exclusion key run again."""
        for item in self._held.pop(key, ()):
            heapq.heappush(self._heap, item)

    def release_all(self) -> None:
        for key in list(self._held):
            self.release(key)
        for item in self._holds.release():
            heapq.heappush(self._heap, item)

    def has_due(self, now: float) -> bool:
        """Whether a message may start now that waits for no other."""
        first = self._first()
        return first is not None and first.due <= now

    def _first(self) -> Item | None:
        while self._heap and not self._valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def first_due(self) -> float | None:
        """Return the smallest due of all that wait; None when nothing waits."""
        dues = [item.due for held in self._held.values() for item in held[:1]]
        first = self._first()
        if first is not None:
            dues.append(first.due)
        look = self._holds.next_look()
        if look is not None:
            dues.append(look)
        return min(dues, default=None)
