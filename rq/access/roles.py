"""Roles, which of them covers which, and who somebody is once they are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from rq.message.guarded import Sender


class Role(StrEnum):
    """What somebody may do. Each role may do what those before it may, except that a
    producer leases nothing, that viewers and workers send nothing, and that a sender sees
    nothing but what it has sent itself."""

    SENDER = "sender"  # sends messages, sees and cancels its own
    VIEWER = "viewer"  # looks at everything
    PRODUCER = "producer"  # sends messages
    WORKER = "worker"  # works on messages under leases
    OPERATOR = "operator"  # changes messages and queues that are there
    ADMIN = "admin"  # makes and removes queues, and so runs programs

    def covers(self, other: Role) -> bool:
        """Return whether this role may do what `other` may."""
        return other in _COVERED[self]


_COVERED: Mapping[Role, frozenset[Role]] = {
    Role.SENDER: frozenset({Role.SENDER}),
    Role.VIEWER: frozenset({Role.VIEWER}),
    Role.PRODUCER: frozenset({Role.SENDER, Role.VIEWER, Role.PRODUCER}),
    Role.WORKER: frozenset({Role.VIEWER, Role.WORKER}),
    Role.OPERATOR: frozenset(Role) - {Role.ADMIN},
    Role.ADMIN: frozenset(Role),
}
EVERY_QUEUE = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody who was let in.

    `queues` are shell patterns (`mail-*`) of the queues they may ask of. To those of
    `sends` they may send whatever their role is: a worker's scripts may have to.
    `of` is the user behind a `name` that is not that of a user itself, as a token's.
    """

    name: str
    role: Role
    queues: tuple[str, ...] = EVERY_QUEUE
    sends: tuple[str, ...] = ()
    of: str = ""

    @property
    def user(self) -> str:
        """Return whose idempotency keys theirs are, and by whom messages are."""
        return self.of or self.name

    def may(self, role: Role) -> bool:
        return self.role.covers(role)

    @property
    def sees_own_alone(self) -> bool:
        """Whether they see no messages but their own."""
        return not self.may(Role.VIEWER)

    @property
    def sender(self) -> Sender:
        """Return as whom a guarded queue hears them."""
        return Sender.OPERATOR if self.may(Role.OPERATOR) else Sender.PRODUCER

    def at_most_producing(self) -> Principal:
        """Return them with no more than the right to send."""
        return replace(self, role=Role.PRODUCER) if self.may(Role.PRODUCER) else self

    def may_send(self, queue: str) -> bool:
        """Return whether they may send messages to a queue."""
        by_role = self.may(Role.SENDER) and self.sees(queue)
        return by_role or _fits(queue, self.sends)

    @property
    def is_limited(self) -> bool:
        """Whether there may be queues that they may not ask of."""
        return EVERY_QUEUE[0] not in self.queues

    def sees(self, queue: str) -> bool:
        """Return whether they may ask of a queue."""
        return _fits(queue, self.queues)


def _fits(queue: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(queue, pattern) for pattern in patterns)
