"""A job, its queue, and the events that change them and their copies. Pure."""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from rq.broker.state.deadlines import Timed


class Added(NamedTuple):
    """A job was taken."""

    job: str
    queue: bytes
    body: bytes
    ctime: int  # nanoseconds: its place in its queue
    created: float  # seconds of the broker's clock
    ttl: float
    retry: float
    delay: float
    due: float  # when it comes into its queue, the next time; 0: never
    queued: bool  # whether it is in it from the start


class Queued(NamedTuple):
    """A job came into its queue again, or for the first time."""

    job: str
    due: float  # when it comes again
    nacks: int
    deliveries: int  # beyond the first


class Given(NamedTuple):
    """A job was handed to a client."""

    job: str
    due: float  # when it comes again; 0: never


class Put(NamedTuple):
    """A job is out of its queue until it is due."""

    job: str
    due: float


class Removed(NamedTuple):
    """Jobs are gone: acknowledged, deleted, or their time is over."""

    jobs: tuple[str, ...]
    why: str


class Paused(NamedTuple):
    """What goes neither into a queue, nor out of it."""

    queue: bytes
    into: bool
    out: bool


class Newest(NamedTuple):
    """No job may have an earlier place than this from now on."""

    ctime: int


class Flushed(NamedTuple):
    """All jobs up to one are gone, and all queues."""

    ctime: int


class Leaving(NamedTuple):
    """Whether the node is about to leave its cluster."""

    leaving: bool


class Copied(NamedTuple):
    """Which nodes may have a copy of a job that is here."""

    job: str
    wanted: int  # copies that were asked for
    may_have: tuple[str, ...]  # ids of nodes, this one too if it keeps it
    announces: bool  # its next queueing, to the other nodes
    waits: bool  # its producer waits for copies
    moves: int  # how often it went to another node for good


class Acked(NamedTuple):
    """A job is acknowledged, and copies elsewhere are to be collected."""

    job: str
    expires: float  # when the job is not here: until when this is kept; else 0


class Buried(NamedTuple):
    """An id is gone, and does not come back before a time."""

    job: str
    until: float  # seconds of the broker's clock
    is_over: bool  # no copy of it shall live anywhere
    moves: int


OfCopies = Copied | Acked | Buried
Event = (
    Added
    | Queued
    | Given
    | Put
    | Removed
    | Paused
    | Newest
    | Flushed
    | Leaving
    | OfCopies
)
# Why jobs are removed here only: what comes of them from elsewhere is a job again.
EVICTED, MOVED = "evicted", "moved"
HERE_ONLY = frozenset({"deleted", "expired", EVICTED, MOVED})


class State(StrEnum):
    """Where a job is; the words of SHOW and JSCAN."""

    WAIT_REPL = "wait-repl"  # its producer waits for copies elsewhere
    ACTIVE = "active"  # delayed, or a client has it
    QUEUED = "queued"
    ACKED = "acked"


class Job:
    """A job; times are seconds of the broker's clock."""

    __slots__ = (
        "at",
        "body",
        "created",
        "ctime",
        "delay",
        "deliveries",
        "due",
        "given",
        "job_id",
        "nacks",
        "queue",
        "retry",
        "slot",
        "state",
        "ttl",
        "was_queued",
    )

    def __init__(self, added: Added, queue: Queue) -> None:
        self.job_id = added.job
        self.queue = queue
        self.body = added.body
        self.ctime = added.ctime
        self.created = added.created
        self.ttl = added.ttl  # most have the same: `expires` would be 24 bytes of each
        self.retry = added.retry
        self.delay = added.delay
        self.due = added.due  # when it comes into its queue; 0: never again
        self.state = State.ACTIVE
        self.nacks = 0
        self.deliveries = 0  # beyond the first
        self.given = False
        self.was_queued = False
        self.at = 0.0  # when something is to be done about it, see `Timed`
        self.slot: dict[Timed, None] | None = None

    @property
    def expires(self) -> float:
        """When it is over, whatever became of it."""
        return self.created + self.ttl

    def expire_from(self, at: float) -> None:
        """Let it be over at `at`, and not before."""
        self.ttl = at - self.created

    @property
    def wakes(self) -> float:
        """When something is to be done about it."""
        due, expires = self.due, self.created + self.ttl
        return due if due and due < expires else expires

    @property
    def comes_once(self) -> bool:
        """Whether it comes at most once, and is still to come."""
        return not self.retry and bool(self.due or self.state is State.QUEUED)

    @property
    def is_spent(self) -> bool:
        """Whether it comes at most once, and was handed out: it never comes again."""
        return not self.due and self.was_queued and self.state is State.ACTIVE


def in_order() -> SortedKeyList[Job]:
    """Return an empty list of jobs, which keeps them in the order in which clients get
    them: that of their creation."""
    return SortedKeyList(key=attrgetter("ctime"))


_NO_JOBS = in_order()  # stays empty


class Queue:
    """A queue: the jobs in it, by the time of their creation."""

    __slots__ = (
        "came",
        "held",
        "into",
        "jobs",
        "jobs_in",
        "jobs_out",
        "name",
        "number",
        "out",
        "used",
    )

    def __init__(self, name: bytes, number: int, now: float) -> None:
        self.name = name
        self.number = number  # among all queues there ever were; 0 while it rests
        self.jobs = in_order()
        self.held = 0  # jobs that belong to it, in it or not
        self.into = self.out = False  # whether it is paused in input, in output
        self.jobs_in = self.jobs_out = 0
        self.came = self.used = now

    def __len__(self) -> int:
        return len(self.jobs)

    def rest(self) -> None:
        """Be forgotten, but by the jobs that are handed out: take little memory."""
        self.number, self.jobs = 0, _NO_JOBS

    def come_again(self, number: int, now: float) -> None:
        """Be a queue that has just come."""
        self.number, self.jobs = number, in_order()
        self.jobs_in = self.jobs_out = 0
        self.came = self.used = now

    @property
    def paused(self) -> str:
        """The word of PAUSE for it."""
        if self.into:
            return "all" if self.out else "in"
        return "out" if self.out else "none"
