"""What questions to the index ask, and what they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rq.published import Part
from rq.words.states import State

TREND_HOURS = (
    24  # of the buckets of a group's trend; the last is the hour that is not over
)
MOST_HITS = (
    10_000  # that are counted, and sorted by another order than their acceptance
)
RUNNING = "running"  # the outcome of an attempt that has not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """How far the index has read."""

    as_of: float  # epoch seconds: what happened before is in it
    read: float  # 0 to 1: of what the journals hold
    is_building: bool  # it is being made again, and lacks what is not read yet


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsQuestion:
    """Attempts that were at work between two moments (epoch seconds)."""

    since: float
    until: float | None = None  # None: now
    queue: str | None = None
    is_failed: bool = False  # only those that ended in err
    timer: str | None = None  # only of messages that this timer has sent
    by: str | None = None  # only of messages that this user has sent
    is_slow: bool = False  # only those that ran longer than 95 % of their queue's
    order: str = "started"  # a key of `questions.RUN_ORDERS`
    is_descending: bool = True
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An attempt; times in epoch seconds, durations in seconds."""

    queue: str
    msg_id: str
    attempt: int
    started: float
    ended: float | None  # None: it runs
    waited: float | None
    ran: float
    outcome: str  # done, relayed, err, cancelled, retry, lost, requeued, or RUNNING
    cause: str | None
    text: str | None
    timer: str | None
    by: str | None  # who has sent the message


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What a question for runs means in all, whatever part of it is listed."""

    runs: int
    failed: int
    missed: int  # fires of timers; for who reads `config/timers.fires`: 0 here
    slowest: Run | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    rows: tuple[Run, ...]
    sums: Sums
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Messages in err that failed alike (`rq.message.group`), and are not acknowledged."""

    group: str
    wording: str
    cause: str
    queues: Mapping[str, int]  # how many in each
    count: int
    first: float  # epoch seconds: when the oldest and the newest of them failed
    last: float
    trend: tuple[int, ...]  # of these by the hour of their failure, the newest last
    sample: tuple[str, str]  # queue and id of the newest


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """Messages that hold each of some words, of 3 characters or more, in any case."""

    words: tuple[str, ...] = ()
    queue: str | None = None
    state: State | None = None
    since: float | None = None  # accepted since then (epoch seconds)
    by: str | None = None  # who has sent them
    order: str = "accepted"  # a key of `questions.HIT_ORDERS`
    is_descending: bool = True
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuestion:
    """Messages of a queue that are in a state, in an order of their last attempts."""

    queue: str
    state: State
    order: str  # a key of `questions.LIST_ORDERS`
    is_descending: bool = True
    limit: int = 100
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message as it is now; what the index does not keep of it is empty."""

    queue: str
    msg_id: str
    state: State
    accepted: float
    changed: float  # when it came into its state
    attempt: int
    count: int
    cause: str | None
    text: str | None
    group: str | None
    params: Mapping[str, str] = field(default_factory=dict)
    key: str | None
    src: str | None
    timer: str | None
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    rows: tuple[Hit, ...]
    more: bool  # behind these
    count: int  # MOST_HITS at most: then there may be more


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long attempts of a queue ran, in seconds; None: none has ended."""

    p50: float | None
    p95: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hour:
    """What happened in an hour, in the columns of the published history."""

    began: float  # epoch seconds
    part: Part
