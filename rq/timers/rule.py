"""What a timer is, as values; pure. Its file is read in `timer`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from rq import names
from rq.flow.plan import Plan
from rq.timers.cron import Cron
from rq.words.nesting import Json

_LONGEST_NAME = 100  # characters that go into a key as they are
_DRAWS = 2**32


class CatchUp(StrEnum):
    """Which of the fires are made up for that could not be when they were due."""

    LAST = "last"
    NONE = "none"
    ALL = "all"


class Overlap(StrEnum):
    """What a fire does while a message of an earlier one waits or runs."""

    QUEUE = "queue"
    SKIP = "skip"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Timer:
    """A timers/NAME.json that can be used."""

    name: str
    period: int  # seconds; 0: it has a rule of cron
    dest: str
    fields: Mapping[str, Json]  # of its messages, but for `dest`
    cron: Cron | None = None
    jitter: int = 0  # seconds that a fire may be late on purpose
    catch_up: CatchUp = CatchUp.LAST
    overlap: Overlap = Overlap.QUEUE
    within: float = 0.0  # seconds in which one has to succeed; 0: it is not expected
    flow: Plan | None = None  # sent at each fire, in place of a message

    @property
    def queue(self) -> str:
        """The local queue that takes the message."""
        return "relay" if names.is_remote(self.dest) else self.dest

    @property
    def rule(self) -> str:
        """What names the moments that its fires are at; "" if they are counted from its
        first."""
        return f"{self.cron.expression} {self.cron.zone}" if self.cron else ""

    def key(self, nominal: float, kind: str = "timer") -> str:
        """Return what names the message of one fire: sent again, it is the same."""
        named = self.name
        if not named.isprintable() or len(named) > _LONGEST_NAME:
            named = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{kind}/{named}/{nominal!r}"

    def late_by(self, nominal: float, gap: float) -> float:
        """Return the seconds that a fire waits on purpose: less than its `jitter`, and
        than the `gap` to the next; the same whenever it is asked."""
        if not self.jitter:
            return 0.0
        drawn = hashlib.sha256(self.key(nominal).encode()).digest()[:4]
        return min(self.jitter, gap) * int.from_bytes(drawn) / _DRAWS
