"""Which message runs next: by (due, arrival), not two of one exclusion key at once, and
none whose destination is backed off."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable

from rq.queues.schedule.destinations import BackOffs
from rq.queues.schedule.exclusion import Excluded
from rq.queues.schedule.item import Item

_AT_ONCE = 0.001  # seconds; a line of the journal tells microseconds
_LOOKS = 500  # messages put aside in one go: the files of some are read


def turn(due: float, since: float, tried: bool, now: float) -> float:
    """Return when a message may run that has waited `since` then.

    When the clock is put back, a message that was due when it came stays due, and one
    that waits after an attempt waits no longer than it was told to. A moment that a
    sender asked for is kept.
    """
    if due <= since + _AT_ONCE:
        return min(due, now)
    return min(due, now + due - since) if tried else due


class Waiting:
    """Messages in que, soonest first, each in one place. An item whose message has moved
    on or changed its due since is dropped when it is met: `valid` tells. `leader_of`
    tells with whom a message rides."""

    def __init__(
        self,
        valid: Callable[[Item], bool],
        dest_of: Callable[[str], str],
        leader_of: Callable[[str], str | None],
    ) -> None:
        self._valid = valid
        self._dest_of = dest_of
        self._leader_of = leader_of
        self._heap: list[Item] = []
        self._excluded = Excluded()
        self._riding: dict[str, list[Item]] = {}  # by leader
        self._holds: BackOffs[Item] = BackOffs()

    def fill(self, items: Iterable[Item]) -> None:
        """Add many at once."""
        self._heap.extend(items)
        heapq.heapify(self._heap)

    def add(self, item: Item) -> None:
        heapq.heappush(self._heap, item)

    def __len__(self) -> int:
        """Return how many may run as soon as they are due, and those that are dropped
        when they are met."""
        return len(self._heap)

    def next_due(
        self, now: float, key_of: Callable[[str], str | None], busy: Container[str]
    ) -> tuple[str | None, float | None]:
        """Return (message to claim now, None) or (None, when to look again).

        A message whose exclusion key is `busy` is held until `release` of that key.
        Unread: `key_of` cannot tell it for now.
        """
        self._try_held(now)
        for _ in range(_LOOKS):
            if not self._heap:
                return None, self._holds.next_look()
            first = self._heap[0]
            if self._put_away(first):
                continue
            if first.due > now:
                return None, self._sooner(first.due)
            # Unread leaves it where it is.
            key = self._excluded.key_of(first.msg_id) or key_of(first.msg_id)
            heapq.heappop(self._heap)
            if key is not None and key in busy:
                self._excluded.keep(key, first)
                continue
            self._left(first)
            if not self._waits_outside(first, now):
                return first.msg_id, None
        return None, now

    def _put_away(self, first: Item) -> bool:
        """Take the first out of the heap if it cannot run, whenever it is due."""
        if not self._valid(first):
            heapq.heappop(self._heap)
        elif (leader := self._leader_of(first.msg_id)) is not None:
            heapq.heappop(self._heap)
            self._riding.setdefault(leader, []).append(first)
        else:
            return False
        self._left(first)
        return True

    def _left(self, item: Item) -> None:
        """Let the next one stand for those for which a message stood that has left."""
        self._enter(self._excluded.leaves(item.msg_id))

    def _enter(self, item: Item | None) -> None:
        if item is not None:
            heapq.heappush(self._heap, item)

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
        """Try a message though its destination is backed off."""
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
        """Let messages that waited for an exclusion key run again, one after the other."""
        self._enter(self._excluded.release(key))

    def part(self, leader: str) -> None:
        """Let those run by themselves again that rode with a message."""
        for item in self._riding.pop(leader, ()):
            heapq.heappush(self._heap, item)

    def forget_riders(self, leader: str) -> None:
        """Those that ride with a message end with it."""
        self._riding.pop(leader, None)

    def release_all(self) -> None:
        """Look anew at all that wait for another message or for something outside."""
        for item in (*self._excluded.release_all(), *self._holds.release()):
            heapq.heappush(self._heap, item)

    def has_due(self, now: float) -> bool:
        """Whether a message may start now that waits for no other."""
        first = self._first()
        return first is not None and first.due <= now

    def _first(self) -> Item | None:
        while self._heap and self._put_away(self._heap[0]):
            pass
        return self._heap[0] if self._heap else None

    def first_due(self) -> float | None:
        """Return the smallest due of all that wait; None when nothing waits."""
        dues = [item.due for item in self._excluded.firsts()]
        first = self._first()
        if first is not None:
            dues.append(first.due)
        look = self._holds.next_look()
        if look is not None:
            dues.append(look)
        return min(dues, default=None)
