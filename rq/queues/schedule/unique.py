"""Equal messages stand once: which are equal, who stands, and what becomes of the next."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rq.queues.schedule import coalesce
from rq.words.nesting import Json

_LONGEST = 48  # characters of a key that is kept as it is
_DIGITS = 32  # of the digest of a longer one


class Scope(StrEnum):
    """Where a message stands in the way of an equal one."""

    QUEUED = "queued"  # as long as it is in que
    RUNNING = "running"  # as long as it is in run
    BOTH = "both"
    WINDOW = "window"  # for some time since it was accepted


class Conflict(StrEnum):
    """What becomes of a message in whose way another stands."""

    JOIN = "join"  # nothing new is made: who sends it gets the id of the one
    REPLACE = "replace"  # it takes the place of the one
    REJECT = "reject"  # it is refused


@dataclass(frozen=True, slots=True)
class Rule:
    """The setting `unique`."""

    params: tuple[int, ...]
    scope: Scope
    conflict: Conflict
    seconds: float  # of a window

    @property
    def looks_at_que(self) -> bool:
        """Whether who waits stands in the way."""
        return self.scope in (Scope.QUEUED, Scope.BOTH)

    @property
    def looks_at_run(self) -> bool:
        """Whether who runs stands in the way."""
        return self.scope in (Scope.RUNNING, Scope.BOTH)


def rule(setting: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a queue by its setting, which is checked; None without one."""
    if not setting:
        return None
    return Rule(
        tuple(setting["params"]),
        Scope(setting["scope"]),
        Conflict(setting["conflict"]),
        float(setting["seconds"]),
    )


def key(
    rule: Rule, params: Mapping[str, Json], own: str | None, by: str | None = None
) -> str | None:
    """Return what two messages have in common that are equal; None: it equals no other.

    `own` is the message's `unique_key`, which stands for its params. `by` is who has sent
    it: those of two senders are never equal, for one would learn of the other's. What the
    first letters say keeps the kinds apart, and keys of the setting before: journals hold
    keys.
    """
    values = coalesce.key(params, rule.params)
    if own is None and values is None:
        return None
    text = f"{''.join(map(str, rule.params))}{values}" if own is None else f"={own}"
    if by:
        text = f"@{by}\t{text}"
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"#{digest[:_DIGITS]}"


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has a key."""

    waits: str | None = None  # the first in que
    runs: str | None = None
    last: str | None = None  # who was accepted last
    last_at: float = 0.0  # when that was: epoch seconds


def in_the_way(rule: Rule, holders: Holders, now: float) -> str | None:
    """Return who stands in the way of a new message; None: none does.

    Who runs is named before who waits: it came first. A clock that was set back makes a
    window begin again and no longer than it is.
    """
    if rule.scope is Scope.WINDOW:
        in_time = now - holders.last_at < rule.seconds
        return holders.last if in_time else None
    runs = holders.runs if rule.looks_at_run else None
    return runs or (holders.waits if rule.looks_at_que else None)
