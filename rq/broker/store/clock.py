"""The clock of a broker: it follows the time of day, and goes on when that jumps. Within a
boot of the machine it counts what passes, asleep or awake; after another boot it goes on
by the difference of the time of day, and never back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import cast

CLOCK = "clock"  # a line that tells what the clocks show
LONG = 86400.0  # seconds between two boots that may be the fault of the time of day
GRACE = 300.0  # seconds that nothing expires after such a difference


_UP = partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # is asked for each command


@dataclass(frozen=True, slots=True)
class Machine:
    """The clocks of the machine, in seconds."""

    boot: str  # which start of the machine it is
    wall: Callable[[], float] = time.time
    up: Callable[[], float] = _UP  # since the machine has started, asleep or awake


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clocks showed at one moment, in seconds."""

    now: float  # the broker's
    wall: float  # the time of day, since the epoch
    up: float  # since the machine has started
    boot: str  # which start of the machine that was
    # Nothing expires before this time of the broker's clock: see `Clock`.
    expiry_from: float = 0.0

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: object) -> Reading:
        """Return what a line holds; KeyError: it is none of the clocks."""
        record = cast("Mapping[str, float]", content)
        boot = cast("Mapping[str, str]", content)["boot"]
        now, wall, up = record["now"], record["wall"], record["up"]
        return cls(now, wall, up, boot, record.get("expiry_from", 0.0))


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
    """The clock of a broker that runs.

    When the time of day says that the machine was off for over a day, it may be wrong:
    nothing expires for a while, in which a person can stop the broker.
    """

    def __init__(
        self, last: Reading | None, machine: Machine, least: float = 0.0
    ) -> None:
        """`least`: the latest moment that a line of the journal tells. It may be later
        than `last`, by as much as passed until a crash."""
        self._machine, self._up = machine, machine.up
        wall, up = machine.wall(), machine.up()
        now = up + ahead(last, wall, up, machine.boot)
        self._ahead = max(now, least) - up
        self.missed = self.now() - last.now if last is not None else 0.0
        self.expiry_from = 0.0 if last is None else last.expiry_from
        if last is not None and last.boot != machine.boot and self.missed > LONG:
            self.expiry_from = self.now() + GRACE

    def now(self) -> float:
        """Return the seconds of the broker's clock."""
        return self._up() + self._ahead

    @property
    def grace(self) -> float:
        """For how many seconds from now nothing expires."""
        return max(0.0, self.expiry_from - self.now())

    def reading(self) -> Reading:
        """Return what the clocks show."""
        wall, boot = self._machine.wall(), self._machine.boot
        return Reading(self.now(), wall, self._up(), boot, self.expiry_from)
