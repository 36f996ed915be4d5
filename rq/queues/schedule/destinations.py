"""Back-off per destination: messages for the same `dest` wait together for something
outside, and one of them is tried now and then.

A message that says `later SECONDS@NAME` names what it waits for. For SECONDS no message
with its `dest` is started. Then one is, and the others wait for its end: the first by
due of those that were tried least often, so that one which always fails does not block
all others. They keep their due, and later start in that order.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rq.queues.schedule.line import heap_order

PROBE = 65.0  # seconds the others wait for one that is tried and does not end
MOST = 1000  # names, and `dest` of messages that wait for one

_Item = TypeVar("_Item", bound=tuple[object, ...])  # sorts by when it may run


@dataclass(slots=True)
class _BackOff(Generic[_Item]):
    until: float  # epoch seconds
    tried: Counter[str] = field(default_factory=Counter)  # by message
    # A heap: how often tried, its priority below 0, the message.
    items: list[tuple[int, int, _Item]] = field(default_factory=list)


class BackOffs(Generic[_Item]):
    """The names that are backed off, with the messages that wait for each."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # dest: what its messages wait for
        self._holds: dict[str, _BackOff[_Item]] = {}

    def __bool__(self) -> bool:
        return bool(self._holds)

    def has_room(self, dest: str, name: str, now: float) -> bool:
        """Whether one more name, or `dest`, can be remembered."""
        if max(len(self._holds), len(self._names)) >= MOST:
            self._forget(now)
        new_name = name not in self._holds and len(self._holds) >= MOST
        new_dest = dest not in self._names and len(self._names) >= MOST
        return not (new_name or new_dest)

    def _forget(self, now: float) -> None:
        """Forget names for which no message waits and no attempt runs."""
        kept = {
            k: hold for k, hold in self._holds.items() if hold.items or hold.until > now
        }
        self._holds = kept
        self._names = {dest: name for dest, name in self._names.items() if name in kept}

    def begin(self, msg_id: str, dest: str, name: str, until: float) -> None:
        """Back off from `name` until then: a message for `dest` has tried it in vain."""
        self._names[dest] = name
        hold = self._holds.setdefault(name, _BackOff(until))
        hold.until = until
        hold.tried[msg_id] += 1

    def end(self, dest: str) -> list[_Item]:
        """What a message for `dest` waited for is back; return all that wait for it."""
        name = self._names.pop(dest, None)
        hold = None if name is None else self._holds.pop(name, None)
        return [] if hold is None else [row[-1] for row in hold.items]

    def hurry(self, dest: str) -> None:
        """Try the next message for `dest` at once."""
        hold = self._of(dest)
        if hold is not None:
            hold.until = 0.0

    def keeps(
        self, item: _Item, msg_id: str, dest: str, now: float, after: int = 0
    ) -> bool:
        """Whether a message that is due has to wait; if so, it is kept here, behind those
        with a smaller `after`. If not, it is tried, and the others wait."""
        hold = self._of(dest)
        if hold is None:
            return False
        if hold.until <= now:
            hold.until = now + PROBE
            return False
        heapq.heappush(hold.items, (hold.tried[msg_id], after, item))
        return True

    def about(self, dest: str) -> tuple[str, float] | None:
        """Return what messages for `dest` wait for, and until when; None: nothing."""
        hold = self._of(dest)
        return None if hold is None else (self._names[dest], hold.until)

    def _of(self, dest: str) -> _BackOff[_Item] | None:
        name = self._names.get(dest)
        return None if name is None else self._holds.get(name)

    def ready(self, now: float) -> Iterator[_Item]:
        """Give one message for each name whose back-off is over."""
        for hold in self._holds.values():
            if hold.items and hold.until <= now:
                yield heapq.heappop(hold.items)[-1]

    def awaited(self) -> list[tuple[str, float]]:
        """Return the names that messages wait for, each with when it is tried again."""
        return [(name, hold.until) for name, hold in self._holds.items() if hold.items]

    def release(self) -> list[_Item]:
        """Forget all names; return the messages that wait."""
        items = list(self.in_order())
        self._holds.clear()
        self._names.clear()
        return items

    def in_order(self) -> Iterator[_Item]:
        """Give the messages that wait, of each name in the order in which they are
        tried."""
        for hold in self._holds.values():
            yield from (row[-1] for row in heap_order(hold.items))

    def next_look(self) -> float | None:
        """Return when the first of those that wait may be tried; None if none waits."""
        return min((o.until for o in self._holds.values() if o.items), default=None)
