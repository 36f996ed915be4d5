"""What decides, beside its due, when a waiting message runs: its priority and its keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from weakref import WeakValueDictionary

LEAST, MOST = 0, 9  # priorities; those with the most run first
UNKNOWN: Final = None  # a key that was not read yet
NO_KEY: Final = ""


class Rank:
    """A priority, the key of which only so many may run at once, and the key that takes
    turns. Messages that have these in common share one: it is never changed."""

    __slots__ = ("__weakref__", "fair", "key", "priority")

    def __init__(self, priority: int, key: str | None, fair: str | None) -> None:
        self.priority = priority
        self.key = key
        self.fair = fair

    def __repr__(self) -> str:
        return f"Rank({self.priority}, {self.key!r}, {self.fair!r})"

    @property
    def is_known(self) -> bool:
        """Whether its keys are known."""
        return self.key is not UNKNOWN and self.fair is not UNKNOWN

    def to_json(self) -> list[object] | None:
        """Return what `from_json` takes."""
        return None if self is PLAIN else [self.priority, self.key, self.fair]


PLAIN = Rank(0, NO_KEY, NO_KEY)
UNREAD = Rank(0, UNKNOWN, UNKNOWN)
_shared: WeakValueDictionary[tuple[int, str | None, str | None], Rank] = (
    WeakValueDictionary({(0, NO_KEY, NO_KEY): PLAIN, (0, UNKNOWN, UNKNOWN): UNREAD})
)


def rank(priority: int, key: str | None = UNKNOWN, fair: str | None = UNKNOWN) -> Rank:
    """Return the rank that all messages with these share."""
    of = priority, key, fair
    shared = _shared.get(of)
    if shared is None:
        shared = _shared[of] = Rank(*of)
    return shared


def prior(priority: int, other: Rank) -> Rank:
    """Return a rank with another's keys."""
    if priority == other.priority:
        return other
    return rank(priority, other.key, other.fair)


def from_json(values: Sequence[object] | None) -> Rank:
    """Return the rank that a file tells of."""
    match values:
        case [int(priority), str() | None as key, str() | None as fair]:
            return rank(priority, key, fair)
    return PLAIN
