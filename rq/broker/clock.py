"""The clock of a broker: it follows the time of day, and goes on when that jumps. Within a
boot of the machine it counts what passes, asleep or awake; after another boot it goes on
by the difference of the time of day, and never back."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clocks showed at one moment, in seconds."""

    now: float  # the broker's
    wall: float  # the time of day, since the epoch
    up: float  # since the machine has started
    boot: str  # which start of the machine that was

    def to_json(self) -> dict[str, object]:
        return {"now": self.now, "wall": self.wall, "up": self.up, "boot": self.boot}


def ahead(last: Reading | None, wall: float, up: float, boot: str) -> float:
    """Return how far the broker's clock is ahead of `up`, going on from `last`.

    >>> ahead(Reading(50.0, 900.0, 10.0, "a"), 5000.0, 12.0, "a") + 12.0
    52.0
    >>> ahead(Reading(50.0, 900.0, 10.0, "a"), 907.0, 1.0, "b") + 1.0
    57.0
    """
    if last is None:
        return wall - up
    if last.boot == boot:
        return last.now - last.up
    return last.now + max(0.0, wall - last.wall) - up


class Clock:
    """The clock of a broker that runs."""

    def __init__(self, last: Reading | None, boot: str) -> None:
        self._boot = boot
        self._ahead = ahead(last, time.time(), _up(), boot)

    def now(self) -> float:
        """Return the seconds of the broker's clock."""
        return _up() + self._ahead

    def reading(self) -> Reading:
        """Return what the clocks show."""
        return Reading(self.now(), time.time(), _up(), self._boot)


def _up() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
