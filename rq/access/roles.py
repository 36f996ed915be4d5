"""Roles in their order, and who somebody is once they are known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Role(StrEnum):
    """What somebody may do; each role may do what those before it may."""

    VIEWER = "viewer"  # looks at everything
    PRODUCER = "producer"  # sends messages
    OPERATOR = "operator"  # changes messages and queues that are there
    ADMIN = "admin"  # makes and removes queues, and so runs programs

    @property
    def rank(self) -> int:
        """Return the place in the order, 0 the least."""
        return _ORDER.index(self)

    def covers(self, other: Role) -> bool:
        """Return whether this role may do what `other` may."""
        return self.rank >= other.rank


_ORDER = tuple(Role)
EVERY_QUEUE = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who was let in.

    `queues` are shell patterns (`mail-*`) of the queues they may ask of.
    """

    name: str
    role: Role
    queues: tuple[str, ...] = EVERY_QUEUE

    def may(self, role: Role) -> bool:
        return self.role.covers(role)

    @property
    def is_limited(self) -> bool:
        """Whether there may be queues that they may not ask of."""
        return EVERY_QUEUE[0] not in self.queues

    def sees(self, queue: str) -> bool:
        """Return whether they may ask of a queue."""
        return any(fnmatchcase(queue, pattern) for pattern in self.queues)
