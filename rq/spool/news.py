"""The notices of a queue: what it has told people of how it goes, and has still to tell.

Owner and recovery make it from the same lines, so neither a kill nor a power cut tells
anything twice, or forgets that it was told. A line says the new values themselves.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypedDict, cast

from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.spool.record import Facts, More, Record
from rq.words.states import Event

_RUNS = 101  # successes whose run times are remembered
_SLOW = 10_000  # attempts at work of which it is remembered that they were told
_ENOUGH = 10  # of them, for a median
SUCCESS = frozenset({Event.FINISH, Event.RELAY})


class GroupFields(TypedDict, total=False):
    """What a line says of a group; with `at` it is a new one."""

    at: float
    more: int
    first: JsonObject


class NewsFields(TypedDict, total=False):
    """The field `news` of a line: what has changed."""

    groups: dict[str, GroupFields]
    failing: float
    quiet: float
    watched: float


@dataclass(slots=True)
class Group:
    """What is told of one matter, at most once in a while."""

    at: float = 0.0  # epoch seconds: when it was told last
    more: int = 0  # that came since, and were not told
    first: JsonObject = field(default_factory=dict)  # the story of the first of these

    def is_over(self, now: float, every: float) -> bool:
        """Whether so many seconds have passed; a clock that was put back ends them,
        too."""
        return not 0 <= now - self.at < every


class News:
    """What one queue has told."""

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """`saved` is what `to_json` gave."""
        values = saved or {}
        groups = values.get("groups", {})
        self.groups = {matter: Group(**each) for matter, each in groups.items()}
        # All in epoch seconds, 0: not so.
        self.failing: float = values.get("failing", 0.0)  # since an err that was told
        self.quiet: float = values.get("quiet", 0.0)  # since it was told that it is
        self.watched: float = values.get("watched", 0.0)  # since that is looked for
        self.succeeded: float = values.get("succeeded", 0.0)  # last
        # Attempts that are at work and were told to be slow; none outlives its owner.
        self._slow: dict[tuple[str, int], None] = {}
        self._runs = deque[float](values.get("runs", ()), maxlen=_RUNS)  # seconds

    def to_json(self) -> dict[str, Any]:
        """Return what the constructor takes."""
        return {
            "groups": {matter: asdict(group) for matter, group in self.groups.items()},
            "failing": self.failing,
            "quiet": self.quiet,
            "watched": self.watched,
            "succeeded": self.succeeded,
            "runs": list(self._runs),
        }

    @property
    def median(self) -> float | None:
        """Return how many seconds a success takes; None: there were too few."""
        if len(self._runs) < _ENOUGH:
            return None
        return statistics.median(self._runs)

    def is_slow(self, message: Message) -> bool:
        """Whether it was told that the attempt on a message takes long."""
        return (message.msg_id, message.attempt) in self._slow

    def note_slow(self, message: Message) -> None:
        """Remember that this was told."""
        self._slow[message.msg_id, message.attempt] = None
        if len(self._slow) > _SLOW:
            del self._slow[next(iter(self._slow))]

    def take(self, record: Record) -> None:
        """Take a line of the journal; each once, in their order."""
        if record["ev"] in SUCCESS:
            self.succeeded = record["ts"] / 1e6
            if "run_us" in record:
                self._runs.append(record["run_us"] / 1e6)
        if "news" in record:
            self._change(cast("NewsFields", record["news"]))

    def _change(self, change: NewsFields) -> None:
        for matter, values in change.get("groups", {}).items():
            self.groups[matter] = self.changed(matter, values)
        self.failing = change.get("failing", self.failing)
        self.quiet = change.get("quiet", self.quiet)
        self.watched = change.get("watched", self.watched)

    def changed(self, matter: str, values: GroupFields) -> Group:
        """Return the group of a matter as it is with what a line says of it."""
        before = {} if "at" in values else asdict(self.groups.get(matter, Group()))
        return Group(**{**before, **cast("dict[str, Any]", values)})


# ---- what the end of a message adds

Printed = tuple[int, int]  # bytes of a log, from and to, that an attempt has printed


class Ended(NamedTuple):
    """A message that has ended, and what is known then."""

    message: Message
    facts: Facts
    now: float  # epoch seconds
    news: News  # by its queue so far
    printed: Printed | None = None


# What the line of an end says that it owes to other queues, and of what was told.
Owes = Callable[[Ended], More]


def owes_nothing(ended: Ended) -> More:
    return {}
