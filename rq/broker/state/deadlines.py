"""When to look at what: a timing wheel, exact to 10 ms. Pure.

A slot is as wide as a 512th of what was left until it when it was opened, 10 ms at least;
when a wide one begins, what is in it goes into narrower ones. So there are few slots,
whatever the number of deadlines, and one that is cancelled leaves nothing behind.
"""

from __future__ import annotations

import heapq
from itertools import chain, islice
from math import inf
from typing import Generic, Protocol, TypeVar, cast

What = TypeVar("What")

_SLOTS = 100  # of the narrowest kind, a second
_FINE = 10  # bits of a distance that a slot keeps apart
_LEVEL_BITS = 6
_LEVELS = (1 << _LEVEL_BITS) - 1


class Timed(Protocol):
    """What waits for a moment: it is its own deadline, for an object more of each of a
    million jobs is 64 MB."""

    at: float  # seconds of the broker's clock
    slot: dict[Timed, None] | None  # None once it is over or cancelled


Waiting = TypeVar("Waiting", bound=Timed)


class Deadline(Generic[What]):
    """A moment for something that is no object of its own."""

    __slots__ = ("at", "slot", "what")

    def __init__(self, what: What, at: float) -> None:
        self.what = what
        self.at = at
        self.slot: dict[Timed, None] | None = None


class Wheel(Protocol):
    """Deadlines, of whatever."""

    opens: float
    alarm: Alarm | None

    def next(self) -> float | None: ...


class Alarm:
    """When the first of several wheels may have something to do."""

    __slots__ = ("_wheels", "at")

    def __init__(self, *wheels: Wheel) -> None:
        self._wheels = wheels
        for wheel in wheels:
            wheel.alarm = self
        self.look()

    def look(self) -> None:
        """See when that is, for what was cancelled may have been the first."""
        at = inf
        for wheel in self._wheels:
            if wheel.opens < at and (opens := wheel.next()) is not None and opens < at:
                at = opens
        self.at = at


class Deadlines(Generic[Waiting]):
    """Deadlines, the next ones first."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[Timed, None]] = {}
        self._order: list[int] = []  # heap of the slots
        self._now = 0.0  # the latest moment known
        # Nothing opens before; what is cancelled may have been all that does then.
        self.opens = inf
        self.alarm: Alarm | None = None  # of this wheel and others

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        """Have none any more. Those that there were can still be cancelled."""
        self._slots, self._order, self.opens = {}, [], inf

    def add(self, deadline: Timed, now: float = 0.0) -> None:
        """Wait for a deadline. `now`, where it is known, opens a narrow slot at once."""
        tick = int(max(self._now, now) * _SLOTS)
        at = int(deadline.at * _SLOTS)
        level = (at - tick).bit_length() - _FINE
        if level < 0 or at <= tick:
            level = 0
        elif level > _LEVELS:
            level = _LEVELS
        key = (at >> level << level << _LEVEL_BITS) + level
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = {}
            heapq.heappush(self._order, key)
            opens = _opens(key)
            if opens < self.opens:
                self.opens = opens
                if self.alarm is not None and opens < self.alarm.at:
                    self.alarm.at = opens
        slot[deadline] = None
        deadline.slot = slot

    def cancel(self, deadline: Waiting) -> None:
        """Wait for it no longer."""
        if deadline.slot is not None:
            del deadline.slot[deadline]
            deadline.slot = None

    def move(self, deadline: Waiting, at: float, now: float) -> None:
        """Wait for it until another moment."""
        self.cancel(deadline)
        deadline.at = at
        self.add(deadline, now)

    def next(self) -> float | None:
        """Return when `due` has something to do; None: never."""
        order, slots = self._order, self._slots
        while order:
            key = order[0]
            if slots[key]:
                self.opens = _opens(key)
                return self.opens
            del slots[heapq.heappop(order)]
        self.opens = inf
        return None

    def first(self, most: int) -> list[Waiting]:
        """Return so many of the next ones, about in their order; they stay."""
        slots = (self._slots[key] for key in sorted(self._order))
        return cast("list[Waiting]", list(islice(chain.from_iterable(slots), most)))

    def due(self, now: float, most: int) -> list[Waiting]:
        """Return what is due by now, the earliest first; looks at up to `most`."""
        if now > self._now:
            self._now = now
        due: list[Waiting] = []
        if now < self.opens:  # as nearly always
            return due
        while most > 0 and (opens := self.next()) is not None and opens <= now:
            slot = self._slots[self._order[0]]
            most -= len(slot)
            for _ in range(len(slot) + min(0, most)):
                deadline, _nothing = slot.popitem()
                deadline.slot = None
                if deadline.at <= now:
                    due.append(cast("Waiting", deadline))
                else:
                    self.add(deadline)
        due.sort(key=_moment)
        return due


def _moment(deadline: Timed) -> float:
    return deadline.at


def _opens(key: int) -> float:
    """Return when a slot is to be looked at: a narrow one when it is over."""
    return ((key >> _LEVEL_BITS) + (not key & _LEVELS)) / _SLOTS
