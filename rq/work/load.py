"""How many messages an agent takes at a time: what its slots need, and of short ones a few
more, so that no slot waits for an answer."""

from __future__ import annotations

import asyncio

AHEAD = 0.15  # seconds of work that are leased ahead
MOST = 256  # messages ahead
MOST_ENDS = 1000  # that are not handed in
_WEIGHT = 0.2  # of the message that was measured last


class Load:
    """What an agent has to do, and how fast it does it.

    How long messages keep a slot tells how many its slots work off, also while they wait
    for some; how many have ended would tell how many came.

    >>> load = Load(4)
    >>> load.room(0.0)
    4
    >>> for _ in range(4): load.begin()
    >>> load.room(0.0)
    0
    >>> load.keep_slot(0.02)
    >>> load.room(0.0)
    30

    While nobody takes their ends, messages do not become more and more.

    >>> for _ in range(MOST_ENDS):
    ...     load.begin()
    ...     load.end()
    >>> load.room(0.0)
    0
    >>> for _ in range(MOST_ENDS): load.hand_in()
    >>> load.room(0.0)
    30
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.active = 0  # messages that wait for a slot or run
        self.held = 0  # these, and those whose end is not handed in
        self.changed = asyncio.Event()  # one of them has ended
        self._seconds = 0.0  # that a message keeps a slot; 0: not known
        self._hold_until = 0.0

    @property
    def busy(self) -> int:
        """How many slots are taken."""
        return min(self.slots, self.active)

    def begin(self) -> None:
        """A message has come."""
        self.active += 1
        self.held += 1

    def end(self) -> None:
        """A message is done with, though its end may not be handed in yet."""
        self.active -= 1
        self.changed.set()

    def hand_in(self) -> None:
        """The end of a message is handed in, or nobody will ever take it."""
        self.held -= 1
        self.changed.set()

    def keep_slot(self, seconds: float) -> None:
        """A message has kept a slot for so long."""
        before = self._seconds or seconds
        self._seconds = before + _WEIGHT * (seconds - before)

    def hold(self, until: float) -> None:
        """Take nothing before a moment; as of `room`."""
        self._hold_until = until

    def room(self, now: float) -> int:
        """Return how many more to lease; 0 while it is not worth a request. `now` in
        seconds of the loop's clock."""
        if now < self._hold_until:
            return 0
        ahead = self._ahead
        room = self.slots + ahead - self.active
        if self.active >= self.slots and room < ahead // 2 + 1:
            return 0
        return max(0, min(room, self.slots + MOST_ENDS - self.held))

    @property
    def _ahead(self) -> int:
        """How many messages its slots work off in a moment."""
        if not self._seconds:
            return 0
        return int(min(MOST, self.slots * AHEAD / self._seconds))
