"""When the owner of a queue asks others how predecessors stand, and after which.

Hints make it quick and asking again makes it sure: whatever hint is lost, each predecessor
that may still change is asked for in each round. Rounds over one queue follow each other
after 1, 2, 4 … 60 seconds, one request at a time, at most `AT_ONCE` names in it and so many
a second. What is new, hinted at or needed for a decision (`hurry`) is asked before that.

A round remembers, beside a predecessor of its own queue, who waits for it: of ten thousand
predecessors a second table would be as large as this one.

What is hurried while a request for it is on its way is asked once more: that answer may
tell of a moment before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TypeAlias

AT_ONCE = 1000  # names in a request, and a second
# Who waits for a predecessor: most are waited for by one.
Who: TypeAlias = str | dict[str, None]
_LONGEST = 60.0  # seconds between two rounds


class Round:
    """The predecessors of one queue that may still change."""

    def __init__(self) -> None:
        self._open: dict[str, Who | None] = {}
        self._hurried: dict[str, None] = {}
        self._todo = deque[str]()  # what is left of a round that has begun
        self._flying: frozenset[str] = frozenset()  # on its way
        self._again: set[str] = set()  # of these: hurried meanwhile
        self._next = 0.0  # when a round begins
        self._free = 0.0  # before that nothing is asked
        self._pauses = self._failures = 0
        self.silent_since: float | None = None  # epoch seconds: it does not answer

    def __bool__(self) -> bool:
        return bool(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, place: str, now: float, *, hurry: bool, who: Who | None = None
    ) -> None:
        """Take in a predecessor; without `hurry` it was asked just now."""
        if place not in self._open:
            self._open[place] = who
            self._pauses = 0
            self._next = min(self._next, now + 1.0) if self._next > now else now + 1.0
        if hurry:
            self.hurry(place)

    def remove(self, place: str) -> Who | None:
        """Ask for it no more; return who waits for it, if that is known here."""
        self._hurried.pop(place, None)
        return self._open.pop(place, None)

    def who(self, place: str) -> Who | None:
        """Return who waits for a predecessor, if that is known here."""
        return self._open.get(place)

    def keep(self, place: str, who: Who) -> bool:
        """Remember who waits for a predecessor; False: it is not asked for."""
        if place not in self._open:
            return False
        self._open[place] = who
        return True

    def hurry(self, place: str) -> None:
        """Ask for a predecessor as soon as may be."""
        if place in self._open:
            self._hurried[place] = None
            if place in self._flying:
                self._again.add(place)

    @property
    def is_asked(self) -> bool:
        """Whether a request is on its way."""
        return bool(self._flying)

    def begins(self) -> float | None:
        """Return when the next request may be sent; None: nothing is to be asked before
        an answer has come, or at all."""
        if self._flying or not self._open:
            return None
        return (
            self._free if self._hurried or self._todo else max(self._free, self._next)
        )

    def take(self, now: float) -> list[str]:
        """Return what is asked now, when `begins` says so."""
        if not self._hurried and not self._todo:
            self._todo.extend(self._open)
        places = dict.fromkeys(islice(self._hurried, AT_ONCE))
        for place in places:
            del self._hurried[place]
        while self._todo and len(places) < AT_ONCE:
            place = self._todo.popleft()
            if place in self._open:
                places[place] = None
        self._flying = frozenset(places)
        self._free = now + len(places) / AT_ONCE
        return list(places)

    def put_back(self, seconds: float) -> None:
        """Take that the clock was put back: what was to be asked soon still is."""
        self._next -= seconds
        self._free -= seconds

    def answered(self, now: float) -> frozenset[str]:
        """Take the end of a request; return the names whose answer may be too old."""
        again = frozenset(self._again)
        self._flying, self._failures, self.silent_since = frozenset(), 0, None
        self._again.clear()
        if not self._todo and self._next <= now:
            self._next = now + self._pause(self._pauses)
            self._pauses += 1
        return again

    def failed(self, now: float) -> None:
        """Take that a request had no answer: what it asked for is asked again."""
        self._hurried.update(dict.fromkeys(p for p in self._flying if p in self._open))
        self._flying = frozenset()
        self._again.clear()
        if self.silent_since is None:
            self.silent_since = now
        self._free = now + self._pause(self._failures)
        self._failures += 1

    def _pause(self, number: int) -> float:
        return min(_LONGEST, 2.0 ** min(number, 6))


class Rounds:
    """The rounds over all queues of which predecessors are waited for."""

    def __init__(self) -> None:
        self._of: dict[str, Round] = {}
        self._latest = 0.0  # epoch seconds of the last look

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def of(self, queue: str) -> Round:
        """Return the round over a queue."""
        if queue not in self._of:
            self._of[queue] = Round()
        return self._of[queue]

    def who(self, queue: str, place: str) -> Who | None:
        """Return who waits for a predecessor of a queue, if its round knows it."""
        there = self._of.get(queue)
        return None if there is None else there.who(place)

    def silent_since(self, queue: str) -> float | None:
        """Return since when a queue does not answer; None: it does."""
        there = self._of.get(queue)
        return None if there is None else there.silent_since

    def hurry(self, queue: str, places: Iterable[str]) -> None:
        """Ask for predecessors of a queue as soon as may be."""
        if (there := self._of.get(queue)) is not None:
            for place in places:
                there.hurry(place)

    def due(self, now: float) -> list[str]:
        """Return the queues that may be asked now."""
        if now < self._latest:
            for there in self._of.values():
                there.put_back(self._latest - now)
        self._latest = now
        over = [n for n, there in self._of.items() if not (there or there.is_asked)]
        for name in over:
            del self._of[name]
        begins = ((name, there.begins()) for name, there in self._of.items())
        return [name for name, at in begins if at is not None and at <= now]

    def next_look(self) -> float | None:
        """Return when something is to be asked next; None: nothing is."""
        begins = (there.begins() for there in self._of.values())
        return min((at for at in begins if at is not None), default=None)
