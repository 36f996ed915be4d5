"""What owners, the supervisor and the timers answer on their sockets, as types.

A reply is JSON: whoever asked takes it for one of these, once, where it comes in. They
hold what our own programs read; a reply may hold more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

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
    result: Mapping[str, object]
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
    files: int
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
