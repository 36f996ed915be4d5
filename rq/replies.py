"""What owners, the supervisor and the timers answer on their sockets, as types.

A reply is JSON: whoever asked takes it for one of these, once, where it comes in. They
hold what our own programs read; a reply may hold more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

Counts = Mapping[str, int]  # messages by the name of their state


# ---- a queue's owner


class BatchView(TypedDict):
    """What a message shows of the batch that it runs in."""

    batch: str
    messages: int
    left: int


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


class Detail(TypedDict):
    """`detail`: how a queue is."""

    name: str
    pid: int
    uptime: int  # seconds
    status: str
    admin: str
    oper: str
    reason: str | None
    counts: Counts
    accepting: bool
    closed_reason: str | None
    restored: str | None
    stopping: bool
    lag: int  # folders
    lag_bytes: int
    stuck: str | None
    left_at_door: Mapping[str, str]
    stalled: str | None
    stalled_by: str | None
    num_workers: int
    slots_used: int
    running: Sequence[Running]
    held: Sequence[Held]
    gathering: int
    workers: Sequence[WorkerView]
    next_due: float | None  # epoch seconds
    oldest_due_age: float | None  # seconds
    series: Mapping[str, int | Sequence[int]]
    owed: int
    in_doubt: int
    journal_id: str
    seq: int
    checkpoint_seq: int


class MessageRow(TypedDict, total=False):
    """A message in a list."""

    queue: str
    msg_id: str
    state: str
    due: float  # epoch seconds
    count: int
    attempt: int
    status: str
    waiting: str
    txn: str
    batch: str
    messages: int
    left: int
    leased_by: str  # who works on it elsewhere
    param1: object
    param2: object
    param3: object
    param4: object


class Standing(TypedDict):
    """`get_message_status`: where a message stands."""

    path: str  # of its folder, below the root
    status: str  # its state, and what its script last said
    state: str


class StoryView(TypedDict):
    """What happened, why, and what to do, a sentence each."""

    what: str
    why: str
    todo: str


class AttachmentView(TypedDict):
    """An attachment, and where it lies."""

    sha256: str
    md5: str
    size: int  # bytes
    path: str


class LeaseView(TypedDict, total=False):
    """Who worked on a message under a lease."""

    hash: str  # of the token
    by: str
    seconds: float
    word: str  # digest of what its holder has said of the end
    until: float  # epoch seconds; of one that is out
    heard: float  # epoch seconds


class LeaseRow(TypedDict):
    """A lease that is out, in `leases`."""

    msg_id: str
    attempt: int
    by: str
    since: float  # epoch seconds
    until: float  # epoch seconds, if nothing more is heard
    seconds: float
    started: bool  # its holder has confirmed it
    text: str  # the last progress
    fraction: float | None


class RemoteWorker(TypedDict):
    """Who asks for leases."""

    by: str
    host: str
    slots: int | None
    busy: int  # leases that it holds
    last_heard: float  # epoch seconds
    version: str


class LeasesView(TypedDict):
    """`leases`: all that are out, a page at a time, and who asks for them."""

    leases: Sequence[LeaseRow]
    count: int
    max: int
    next: str | None  # cursor of the next page
    workers: Sequence[RemoteWorker]


class LeaseFile(TypedDict):
    """An attachment of a leased message."""

    name: str
    size: int  # bytes
    sha256: str


class Grant(TypedDict):
    """A lease, as its holder is told of it once."""

    token: str
    msg_id: str
    full_id: str
    attempt: int
    seconds: float
    message: Mapping[str, object]  # its file `msg`, without attachments
    attachments: Sequence[LeaseFile]
    limits: Mapping[str, bool]  # `fetch` false: its attachments are not fetched


class GrantsView(TypedDict):
    """`lease`: what was handed out; `why` nothing was; whose end is wanted."""

    leases: Sequence[Grant]
    why: str | None
    base_url: str  # of this RQ, and `env` of its config: scripts are told them
    env: str
    cancels: NotRequired[Mapping[str, str]]  # msg_id: why


class WordResult(TypedDict, total=False):
    """What became of a word about a token."""

    token: str
    ok: bool
    kind: str  # of a failure
    text: str
    cancel: str  # why the holder should end it
    seconds: float  # that it goes on
    state: str  # where its message is now
    have: int  # bytes of its log
    sha256: str  # of a file that was handed in
    size: int  # bytes of it


class Result(TypedDict, total=False):
    """What is known of the last attempt of a message, be it the one that runs."""

    job_status: str
    cause: str
    exit: int
    signal: str
    attempt: int
    count: int
    wait_us: int
    run_us: int
    cpu_us: int
    max_rss: int  # KiB
    outcome: str
    batch: str
    lease: LeaseView
    finished: float  # epoch seconds
    pid: int | None
    started: float  # epoch seconds
    messages: int
    left: int


class MessageView(TypedDict, total=False):
    """`get_message`: all about a message; its sender's own fields stand beside these."""

    queue: str
    msg_id: str
    state: str
    status: str
    phase: str
    path: str
    due: float  # epoch seconds
    count: int
    max_count: int
    attempt: int
    removed_at: float  # epoch seconds
    result: Result
    story: StoryView
    acknowledged: bool
    _attachments: Mapping[str, AttachmentView]
    _txn: str  # the open transaction that it belongs to
    _restored: str  # why its queue waits for a person


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
    messages: int
    ids: Sequence[str]  # some of its messages; not in a list
    ttl: float  # seconds
    until: float  # epoch seconds


# ---- the supervisor


class ChildView(TypedDict, total=False):
    """A child of the supervisor; an older one may tell less of it."""

    name: str
    kind: str
    state: str
    wanted: str  # UP or DOWN
    pid: int | None
    since: float  # epoch seconds
    restarts: int
    reason: str


class HelperState(TypedDict, total=False):
    """What a helper has written about itself."""

    errors: Mapping[str, str]


class SupervisorStatus(TypedDict, total=False):
    """`status`: the supervisor and its children."""

    pid: int
    root: str
    version: str
    environment: str
    fingerprint: str
    uptime: int  # seconds
    children: Sequence[ChildView]
    scandir: HelperState
    timers: HelperState
    unusable: Mapping[str, str]
    scripts: Mapping[str, str]


# ---- the timers


class TimerRow(TypedDict, total=False):
    """A timer, or a file that is none."""

    name: str
    period: int | None  # seconds
    dest: str | None
    due: float  # epoch seconds
    last: float | None  # epoch seconds
    result: str
    error: str


class TimersStatus(TypedDict):
    """`status`: all timers."""

    timers: Sequence[TimerRow]
    errors: Mapping[str, str]
    sent: int
    failed: int
