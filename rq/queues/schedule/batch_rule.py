"""The rule of batches, pure: which messages that are due form one, and when it starts.

A batch starts when it is full, when it is complete (if its messages say how many they
are), or when its first message has waited long enough. Messages whose batch died go
together once more, for it was as likely the machine; then in smaller ones, so that one
which kills its process ends alone.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson

from rq.words.nesting import Json

PARTS = 10  # in how many a batch that died twice is parted
_SLACK = 64  # entries of a heap that count no more before it is made again


@dataclass(frozen=True, slots=True)
class Rule:
    """The setting `batch` of a queue."""

    most: int  # messages in one
    wait: float  # seconds that the first one waits for more
    by: str | None = None  # the param that those of one have in common
    complete: str | None = None  # the param that says how many there will be

    def at_most(self, lost: int, last: bool) -> int:
        """Return how many may go in a batch with a message whose batches died `lost`
        times; `last`: if its process dies once more, it ends in err. The parts of a whole
        stay together."""
        if self.complete:
            return self.most
        return 1 if last else max(1, self.most // PARTS ** min(max(lost - 1, 0), 9))


def rule(setting: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a checked setting; None for a queue without batches."""
    if not setting:
        return None
    return Rule(
        setting["max"], setting["wait"], setting.get("by"), setting.get("complete")
    )


@dataclass(slots=True)
class _Group:
    """Messages that may go together, in the order in which they may run."""

    most: int
    # Ordered: its first message is found at once, however many have gone before.
    since: OrderedDict[str, float] = field(default_factory=OrderedDict)
    parts: int = 0  # how many there will be; 0: that is not said
    hurried: str | None = None  # the message for which it starts as it is
    alarm: float | None = None  # of its entries among the alarms the one that counts

    @property
    def quota(self) -> int:
        """Return with how many it is full or complete."""
        return self.parts if 0 < self.parts <= self.most else self.most

    def starts_at(self, rule: Rule) -> float:
        """Return when it starts though it is neither full nor complete."""
        return 0.0 if self.hurried else self.oldest + rule.wait

    @property
    def oldest(self) -> float:
        return next(iter(self.since.values()))

    def first(self, count: int) -> list[str]:
        return [msg_id for msg_id, _ in zip(self.since, range(count), strict=False)]


class Gathering:
    """Messages that are due, until the batch that they go in starts."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._groups: dict[str, _Group] = {}
        self._of: dict[str, str] = {}  # message: its group
        # Groups that are full or complete, with their entry in `_by_age` that counts: not
        # later than its first has waited since, and which became so before which.
        self._full: dict[str, tuple[float, int]] = {}
        self._turn = count()
        self._by_age: list[tuple[float, int, str]] = []
        # When groups start at the latest; of each that is not empty the entry that counts
        # is not later than that.
        self._alarms: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __contains__(self, msg_id: str) -> bool:
        return msg_id in self._of

    def add(
        self,
        msg_id: str,
        since: float,
        params: Mapping[str, Json],
        hurry: bool = False,
        most: int | None = None,
    ) -> None:
        """Take a message that may run `since` then, in a batch of `most` at most;
        `hurry`: at once, and first."""
        most = most or self.rule.most
        key = f"{most} {_key(params, self.rule.by)}"
        group = self._groups.setdefault(key, _Group(most))
        if hurry:
            group.hurried = msg_id
            group.since[msg_id] = since
            group.since.move_to_end(msg_id, last=False)
        else:
            group.since.setdefault(msg_id, since)
        group.parts = max(group.parts, _parts(params, self.rule.complete))
        if msg_id not in self._of or hurry:
            self._of[msg_id] = key
            self._set_alarm(key, group)
        self._judge(key, group)

    def _set_alarm(self, key: str, group: _Group) -> None:
        """Look at a group no later than when it starts."""
        at = group.starts_at(self.rule)
        if group.alarm is not None and group.alarm <= at:
            return
        group.alarm = at
        heapq.heappush(self._alarms, (at, key))
        if len(self._alarms) > 2 * len(self._groups) + _SLACK:
            groups = self._groups.items()
            self._alarms = [(o.alarm, k) for k, o in groups if o.alarm is not None]
            heapq.heapify(self._alarms)

    def remove(self, msg_id: str) -> None:
        """Forget a message that has started, or gone."""
        key = self._of.pop(msg_id, None)
        if key is None:
            return
        group = self._groups[key]
        del group.since[msg_id]
        if not group.since:
            del self._groups[key]
            self._full.pop(key, None)
            return
        if group.hurried == msg_id:
            group.hurried = None
        # A hurried message stood before others that may have waited longer.
        self._set_alarm(key, group)
        self._judge(key, group)

    def _judge(self, key: str, group: _Group) -> None:
        if len(group.since) < group.quota:
            self._full.pop(key, None)
            return
        before = self._full.get(key)
        if before is not None and before[0] <= group.oldest:
            return
        turn = next(self._turn) if before is None else before[1]
        self._full[key] = group.oldest, turn
        heapq.heappush(self._by_age, (group.oldest, turn, key))
        if len(self._by_age) > 2 * len(self._full) + _SLACK:
            self._by_age = [(at, turn, key) for key, (at, turn) in self._full.items()]
            heapq.heapify(self._by_age)

    def next_batch(self, now: float) -> tuple[list[str], float | None]:
        """Return (messages to start now, None) or ([], when to look again)."""
        soonest = self._soonest()
        if soonest is None:
            return [], None
        at, group = soonest
        if at > now and not self._full:
            return [], at
        if at > now:
            # No message has waited too long. A group that fills again and again must
            # not always come before the others.
            group = self._longest_full()
        return group.first(group.quota), None

    def _longest_full(self) -> _Group:
        """Return of the groups that are full the one whose first waits longest."""
        while True:
            at, turn, key = self._by_age[0]
            if self._full.get(key) != (at, turn):
                heapq.heappop(self._by_age)
                continue
            group = self._groups[key]
            if group.oldest <= at:
                return group
            self._full[key] = group.oldest, turn
            heapq.heapreplace(self._by_age, (group.oldest, turn, key))

    def _soonest(self) -> tuple[float, _Group] | None:
        """Return the group that starts first, and when."""
        alarms = self._alarms
        while alarms:
            at, key = alarms[0]
            group = self._groups.get(key)
            if group is None or group.alarm != at:
                heapq.heappop(alarms)
                continue
            starts = group.starts_at(self.rule)
            if starts <= at:
                return starts, group
            group.alarm = starts
            heapq.heapreplace(alarms, (starts, key))  # its first message has gone
        return None

    def starts_by(self, now: float) -> bool:
        """Whether a batch is ready to start at a moment."""
        soonest = self._soonest()
        return soonest is not None and (bool(self._full) or soonest[0] <= now)

    def oldest(self) -> float | None:
        """Return since when the one that waits longest could run."""
        soonest = self._soonest()
        return None if soonest is None else soonest[1].oldest

    def about(self, msg_id: str) -> tuple[int, int, float]:
        """Return of the batch that a message waits for: how many are there, how many it
        takes, when it starts at the latest."""
        group = self._groups[self._of[msg_id]]
        return len(group.since), group.quota, group.starts_at(self.rule)


def _key(params: Mapping[str, Json], by: str | None) -> str:
    """Return what the messages of one batch have in common; a missing param equals a
    missing one."""
    return "" if by is None else orjson.dumps(params.get(by)).decode()


def _parts(params: Mapping[str, Json], complete: str | None) -> int:
    """Return how many there will be, as a message says; 0 if that cannot be read."""
    value = params.get(complete) if complete else None
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:10])
    good = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if good and isinstance(value, int) else 0
