"""How many messages an agent takes at a time: what its slots need, and of short ones a few
more, so that no slot waits for an answer."""

from __future__ import annotations

import asyncio

AHEAD = 0.15  # seconds of work that are leased ahead
MOST = 256  # messages ahead
_WEIGHT = 0.5  # of what was measured last


class Load:
    """What an agent has to do, and how fast it does it.

    >>> load = Load(4)
    >>> load.room(0.0)
    4
    >>> for _ in range(204): load.begin()
    >>> for _ in range(200): load.end()
    >>> load.room(0.0)
    0
    >>> load.measure(0.5)
    >>> load.room(0.0)
    30
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.active = 0  # messages that wait for a slot or run
        self.changed = asyncio.Event()  # one of them has ended
        self._ends = 0  # since the last measurement
        self._rate = 0.0  # ends in a second
        self._hold_until = 0.0

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return min(self.slots, self.active)

    def begin(self) -> None:
        """A message has come."""
        self.active += 1

    def end(self) -> None:
        """A message is done with, though its end may not be handed in yet."""
        self.active -= 1
        self._ends += 1
        self.changed.set()

    def measure(self, seconds: float) -> None:
        """Take in how many messages have ended in the last `seconds`."""
        self._rate += _WEIGHT * (self._ends / seconds - self._rate)
        self._ends = 0

    def hold(self, until: float) -> None:
        """Take nothing before a moment; as of `room`."""
        self._hold_until = until

    def room(self, now: float) -> int:
        """Return how many more to lease; 0 while it is not worth a request. `now` in
        seconds of the loop's clock."""
        if now < self._hold_until:
            return 0
        ahead = min(MOST, int(self._rate * AHEAD))
        room = self.slots + ahead - self.active
        if self.active >= self.slots and room < ahead // 2 + 1:
            return 0
        return max(0, room)
