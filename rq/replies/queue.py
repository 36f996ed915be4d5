"""What an owner answers about its queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from rq.replies.leases import Elsewhere

Counts = Mapping[str, int]  # messages by the name of their state


class Running(TypedDict, total=False):
    """A message at work, or a whole batch under the id of its first."""

    msg_id: str
    pid: int | None
    phase: str
    since: float  # epoch seconds
    status: str
    batch: str
    messages: int
    left: int
    leased_by: str  # who works on it elsewhere


class Durations(TypedDict):
    """How long the attempts of the last day ran, to a quarter."""

    attempts: int
    p50: float  # seconds
    p95: float


class LongRun(TypedDict):
    """An attempt that runs far longer than others do."""

    msg_id: str
    ran: float  # seconds, so far
    times: float  # as long as the p95


class Held(TypedDict):
    """A message that stays in run because something of its last attempt lives."""

    msg_id: str
    by: str  # a process, in words


class WorkerView(TypedDict):
    """A long-lived worker."""

    pid: int
    phase: str
    messages: int  # that it has ended
    since: float  # epoch seconds


class TellsRow(TypedDict):
    """Whom a queue tells of a matter, and how that stands."""

    matter: str
    whom: Sequence[str]  # mail:…, a URL, queue:NAME
    own: bool  # its own config says so, and not the root's
    every: float  # minutes
    seconds: float | None  # from here on it is slow, or quiet
    last: float | None  # epoch seconds: when it was told last
    more: int  # that came since, and will be told together


class NoticesView(TypedDict):
    """`notices`: whom a queue tells how it goes."""

    tells: Sequence[TellsRow]
    failing: float | None  # epoch seconds, since an err that was told
    quiet: float | None  # since nothing has succeeded, of which was told
    succeeded: float | None  # the last success


class PauseView(TypedDict):
    """A pause of a queue."""

    by: str  # "" where nobody has said it
    why: str
    since: float | None  # epoch seconds
    until: float | None  # epoch seconds; None: until somebody resumes it
    text: str  # all of that, in a sentence


class Detail(TypedDict):
    """`detail`: how a queue is."""

    name: str
    pid: int
    uptime: int  # seconds
    status: str
    admin: str
    paused: PauseView | None
    oper: str
    reason: str | None
    counts: Counts
    accepting: bool
    closed_reason: str | None
    closed_kind: str | None  # the kind of that failure
    is_sample: bool  # RQ's own `demo`, whose messages fail when they are asked to
    restored: str | None
    stopping: bool
    rows: int  # of `que`: lines of files, which have still to become messages
    lag: int  # folders
    lag_bytes: int
    stuck: str | None
    left_at_door: Mapping[str, str]
    stalled: str | None
    stalled_by: str | None
    num_workers: int
    slots_used: int
    limits: Mapping[str, float]  # of its attempts
    running: Sequence[Running]
    held: Sequence[Held]
    durations: Durations | None  # None: none has ended in the last day
    long_runs: Sequence[LongRun]  # the longest first
    gathering: int
    workers: Sequence[WorkerView]
    elsewhere: Elsewhere | None  # None: the queue leases nothing
    next_due: float | None  # epoch seconds
    oldest_due_age: float | None  # seconds
    series: Mapping[str, int | Sequence[int]]
    owed: int
    in_doubt: int
    journal_id: str
    seq: int
    checkpoint_seq: int


# Seconds that part the values of a histogram: 10 ms to 6 h.
BUCKETS = (
    0.01,
    0.05,
    0.25,
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    10800.0,
    21600.0,
)


class FiguresView(TypedDict):
    """`figures`: what monitors measure of a queue; counters since it was started."""

    status: str
    counts: Counts
    rows: int
    lag: int  # folders
    oldest_due_age: float  # seconds; 0: nothing is due
    slots_used: int
    elsewhere: int  # workers that ask for leases
    accepted: int
    attempts: Mapping[str, int]  # by outcome
    ended: Sequence[tuple[str, str, int]]  # state, cause, number
    wait: Sequence[float]  # numbers in each bucket, then the sum of seconds
    run: Sequence[float]


class Problem(TypedDict):
    """Something that is not as it should be."""

    kind: str
    subject: str  # a message or a path
    text: str


class Checked(TypedDict):
    """`check`: what is wrong with journal, folders and counters."""

    problems: Sequence[Problem]


class Sealed(TypedDict):
    """`seal`: up to which event the journal is history."""

    sealed: bool
    seq: int


class Expired(TypedDict):
    """`expire`: how many messages were removed, and whether there are more."""

    expired: int
    more: bool


class Owed(TypedDict):
    """`owed`: a copy or webhook that is still to be delivered."""

    key: str
    dest: str
    target: str
    msg_id: str
    since: float  # epoch seconds
    in_doubt: bool
    files: bool  # its attachments go along
    why: str


class Restored(TypedDict):
    """`restored`: what a queue whose directory was copied or restored would do."""

    why: str | None
    journal_id: str
    messages: int
    ids: Sequence[str]
    owed: int
    deliveries: Sequence[Owed]


class TransactionView(TypedDict, total=False):
    """`list_txns` and `show_txn`: a transaction."""

    txn: str
    state: str
    key: str  # which its creator chose; absent when it chose none
    of: str  # the transaction that decides for it; absent when it decides itself
    messages: int  # with its rows
    rows: int  # that are no messages yet; absent when there are none
    takes_rows: bool  # `open_txn`, while it is open: whether rows can be handed in
    ids: Sequence[str]  # some of its messages; not in a list
    ttl: float  # seconds
    until: float  # epoch seconds


class RowsView(TypedDict, total=False):
    """`add_rows` and `drop_rows`: messages that wait as lines of a file."""

    rows: str  # the file; not of those that are discarded
    messages: int


class Alike(TypedDict):
    """Messages that failed alike."""

    group: str  # as a filter takes it
    cause: str
    wording: str  # what their texts have in common
    messages: int


class _Counted(TypedDict):
    messages: int
    ids: Sequence[str]  # the first of them
    at: float  # when it began to count, as `before` of a filter takes it


class BulkChoice(_Counted, total=False):
    """`bulk` with `dry_run`: what it would act on. With `groups`, too, of messages that
    have failed: how many there are of each cause, and of each group."""

    causes: Mapping[str, int]  # the most frequent first
    groups: Sequence[Alike]  # the same; the first of them
    grouped: int  # messages that these counts are about, at most 10,000


class BulkView(TypedDict, total=False):
    """`bulk`, `show_bulk` and `list_bulks`: one thing that is done to many messages."""

    bulk: str
    action: str
    to: str | float  # what that is done with: a time, a queue
    filter: Mapping[str, object]
    by: str
    state: str
    messages: int  # of its list
    looked_at: int
    changed: int
    failed_again: int  # since they were chosen: these stay; absent: none
    since: float  # epoch seconds
    ended: float  # epoch seconds; absent while it is open
    why: str  # it failed, or left the last message that it did not change
