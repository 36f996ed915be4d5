"""The tokens of the messages that clients hold, by what they call them. Pure."""

from __future__ import annotations

import heapq
from typing import NamedTuple

MOST = 100_000  # that are held at a time
_GRACE = 60.0  # seconds that a lease may last longer, by what its queue could not hear
_FEW = 64  # dead entries of the heap that may stay
Key = tuple[str, int, str]  # of a user, the digest of a queue, and a message


class Held(NamedTuple):
    """A message that a client has."""

    token: str
    queue: str
    until: float  # seconds of the loop's clock


class Tokens:
    """What the clients of a broker hold, for as long as their leases may last."""

    def __init__(self) -> None:
        self._held: dict[Key, Held] = {}
        self._ends: list[tuple[float, Key]] = []

    def __len__(self) -> int:
        return len(self._held)

    def room(self, now: float) -> int:
        """Return how many more there may be; forget those that are over."""
        while self._ends and self._ends[0][0] <= now:
            _, key = heapq.heappop(self._ends)
            held = self._held.get(key)
            if held is None:
                continue
            if held.until + _GRACE <= now:
                del self._held[key]
            else:
                heapq.heappush(self._ends, (held.until + _GRACE, key))
        return MOST - len(self._held)

    def keep(self, key: Key, held: Held) -> None:
        """Take in a message that a client has, or has for longer now."""
        is_new = key not in self._held
        self._held[key] = held
        if len(self._ends) > 2 * len(self._held) + _FEW:
            self._ends = [
                (each.until + _GRACE, key) for key, each in self._held.items()
            ]
            heapq.heapify(self._ends)
        elif is_new:
            heapq.heappush(self._ends, (held.until + _GRACE, key))

    def of(self, key: Key) -> Held | None:
        """Return what a client holds."""
        return self._held.get(key)

    def drop(self, key: Key) -> None:
        """Forget a message that no client holds any more."""
        self._held.pop(key, None)
