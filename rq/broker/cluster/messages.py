"""What nodes say to each other about jobs. Pure.

All is best effort: a message may be lost, doubled, or come in another order than it was
sent in.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Copy(NamedTuple):
    """A job as it travels; no clocks are compared, so times are what is left of them."""

    job: str
    queue: bytes
    body: bytes
    ctime: int  # nanoseconds: its place in its queue, the same on each node
    ttl: float  # seconds that are left
    delay: float
    retry: float
    wanted: int  # copies that were asked for
    nacks: int
    deliveries: int
    may_have: tuple[str, ...]  # ids of the nodes that were sent a copy
    moves: int = 0  # how often it went to another node, if it comes at most once


class Replicate(NamedTuple):
    """Keep a copy of this job; `quiet`: do not answer (REPLJOB)."""

    copy: Copy
    quiet: bool


class Kept(NamedTuple):
    """This job is durable here (GOTJOB)."""

    job: str


class Enqueue(NamedTuple):
    """Let a job come into its queue at the receiver, after `delay` seconds."""

    job: str
    delay: float


class WillQueue(NamedTuple):
    """This job comes into its queue here in half a second."""

    job: str


class IsQueued(NamedTuple):
    """This job came into its queue here; what the receiver adds to its counters."""

    job: str
    nacks: int
    deliveries: int


class Working(NamedTuple):
    """A client works on this job: out of your queue, and count from now."""

    job: str


class SetAck(NamedTuple):
    """This job is acknowledged. `may_have`: ids of the nodes that the sender knows to have
    been sent a copy; none if it has no copy itself."""

    job: str
    may_have: tuple[str, ...]


class GotAck(NamedTuple):
    """The acknowledgement was taken; `knows`: the job was there."""

    job: str
    knows: bool


class Delete(NamedTuple):
    """Forget this job, in whatever state it is (DELJOB)."""

    job: str


class Need(NamedTuple):
    """Consumers wait here for jobs of a queue (NEEDJOBS)."""

    queue: bytes
    number: int  # of jobs that are asked for


class Yours(NamedTuple):
    """Jobs of a queue for the node that needed them (YOURJOBS)."""

    copies: tuple[Copy, ...]


class Pause(NamedTuple):
    """What goes neither into a queue nor out of it, on each node."""

    queue: bytes
    into: bool
    out: bool


class Mark(NamedTuple):
    """All that the sender knows of jobs of which the receiver may have copies was told
    before this, since their link stands. Only who says that it takes marks gets one."""


Message = (
    Replicate
    | Kept
    | Enqueue
    | WillQueue
    | IsQueued
    | Working
    | SetAck
    | GotAck
    | Delete
    | Need
    | Yours
    | Pause
    | Mark
)


class Letter(NamedTuple):
    """A message for a node; sent when all events before it are durable, an early one at
    once."""

    to: str  # the node's id
    message: Message
    is_early: bool = False


class Peers(Protocol):
    """The other nodes, as those see them who keep and move jobs."""

    @property
    def others(self) -> tuple[str, ...]:
        """Ids of all other members, those that do not answer too; none in handshake."""

    @property
    def reachable(self) -> tuple[str, ...]:
        """Ids of those that new copies may be sent to: linked, not leaving, no doubt."""

    @property
    def counted(self) -> tuple[str, ...]:
        """Ids of those that new copies may be meant for: as `reachable`, and those whose
        link is broken for a moment."""

    def has_room(self, node_id: str) -> bool:
        """Whether there is a link to a node, and little waits for it."""

    def takes_marks(self, node_id: str) -> bool | None:
        """Whether a node takes, and sends, `Mark`; None: it has not said so yet."""

    def is_member(self, node_id: str) -> bool:
        """Whether a node is one of the others."""

    @property
    def size(self) -> int:
        """How many members there are, with this one."""


class NoPeers:
    """The peers of a node that has none."""

    others: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    size = 1

    def is_member(self, _node_id: str) -> bool:
        """Return False: there is no other member."""
        return False

    def has_room(self, _node_id: str) -> bool:
        """Return False: there is no link."""
        return False

    def takes_marks(self, _node_id: str) -> bool | None:
        """Return False: there is no node that does."""
        return False
