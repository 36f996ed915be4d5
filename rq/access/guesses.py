"""How often somebody may guess a password: so often at once, then one each ten seconds.

An address that guesses is slowed, whatever name it tries. A name that many addresses
guess at leaves each of them one guess at once, so that somebody who knows the password is
let in at the first try, wherever the others are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from rq.errors import TooOften

AT_ONCE = 10  # wrong guesses of an address
OF_A_NAME = 50  # wrong guesses of a name until it counts as attacked
PAUSE = 10.0  # seconds that pay for one more guess
MOST = 10_000  # addresses, and names, that are remembered


class Guesses:
    """Counts guesses; memory is bounded, however many addresses and names there are."""

    def __init__(self) -> None:
        self._addresses = Levels()
        self._names = Levels()

    def take(self, address: Hashable, name: Hashable, now: float) -> float:
        """Count a guess before it is tried; TooOften when it comes too soon.

        Return how many guesses of this address were counted lately.
        """
        level = self._addresses.level(address, now)
        attacked = self._names.level(name, now) >= OF_A_NAME
        over = level - ((1 if attacked else AT_ONCE) - 1)
        if over > 0:
            raise TooOften(
                "Too many wrong logins came from this address: wait, then try again.",
                over * PAUSE,
            )
        self._addresses.add(address, 1, now)
        self._names.add(name, 1, now)
        return level

    def give_back(self, address: Hashable, name: Hashable, now: float) -> None:
        """Count a guess no more: it was right, or was never tried."""
        self._addresses.add(address, -1, now)
        self._names.add(name, -1, now)


class Levels:
    """A number for each key, which sinks by one in each pause."""

    def __init__(self) -> None:
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._levels)

    def level(self, key: Hashable, now: float) -> float:
        level, since = self._levels.get(key, (0.0, now))
        return max(0.0, level - max(0.0, now - since) / PAUSE)

    def add(self, key: Hashable, number: int, now: float) -> None:
        level = self.level(key, now) + number
        self._levels.pop(key, None)
        if level > 0:
            self._levels[key] = (level, now)
        if len(self._levels) > MOST:
            self._levels.popitem(last=False)
