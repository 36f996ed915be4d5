"""What an owner answers about a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, cast

from rq.replies.leases import LeaseView


class BatchView(TypedDict):
    """What a message shows of the batch that it runs in."""

    batch: str
    messages: int
    left: int


class WhyView(TypedDict):
    """Why a message waits."""

    reason: str
    text: str
    until: float | None  # epoch seconds
    by: str | None  # a message, or who holds or has paused it


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
    why: WhyView
    next_attempt: str
    txn: str
    batch: str
    messages: int
    left: int
    leased_by: str  # who works on it elsewhere
    dest: str  # if it goes to a queue whose messages hold hidden addresses
    started: float  # epoch seconds: its attempt, which runs
    ended: float  # epoch seconds
    run_us: int  # its last attempt
    wait_us: int
    cause: str
    param1: object
    param2: object
    param3: object
    param4: object


class Standing(TypedDict):
    """`get_message_status`: where a message stands."""

    path: str  # of its folder, below the root
    status: str  # its state, and what its script last said
    state: str


class EndView(TypedDict):
    """`get_ends`: what became of a message; all but its state is of one that has ended."""

    state: str
    acknowledged: bool  # it failed, and a person has seen it
    cause: str
    text: str  # the last that was said
    ended: float | None  # epoch seconds


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
    result: str  # a value that was said, for programs
    goes_on: str  # QUEUE/ID: where it goes on, if it was moved or edited
    tries: int  # that `retry` allows
    batch: str
    lease: LeaseView
    finished: float  # epoch seconds
    pid: int | None
    host: str  # that it ran on, unless it was leased
    worker: int  # the slot of the long-lived worker that had it
    log: list[int | None]  # bytes of its part of the log
    started: float  # epoch seconds
    printed: (
        float | None
    )  # of one that runs: when something was last; None: nothing was
    messages: int
    left: int


class AttemptRow(Result, total=False):
    """An attempt on a message, as it ended, or that runs."""

    how: str  # it ended, in a few words
    text: str  # the last that was said
    log_file: str  # in job/: where its part of the log is


class AttemptsView(TypedDict):
    """`get_attempts`: what is kept of the attempts on a message."""

    attempts: list[AttemptRow]  # the first one first
    left_out: int  # that are not kept, between the first and the newest


class NextAttempt(TypedDict):
    """When a message that was tried before is tried again, and why."""

    attempt: int  # of those that count
    of: int  # as many may be
    at: float  # epoch seconds
    why: str
    waits: float  # seconds since the attempt before
    text: str  # all this, as people read it


class MessageView(TypedDict, total=False):
    """`get_message`: all about a message; its sender's own fields stand beside these."""

    queue: str
    msg_id: str
    by: str  # who has sent it
    state: str
    status: str
    phase: str
    path: str
    due: float  # epoch seconds
    count: int
    max_count: int
    priority: int
    attempt: int
    lost_attempts: int
    removed_at: float  # epoch seconds
    result: Result
    story: StoryView
    next_attempt: NextAttempt
    acknowledged: bool
    _attachments: Mapping[str, AttachmentView]
    _limits: Mapping[str, float]  # of its next attempt, or of the one that runs
    _why: WhyView  # it waits
    _txn: str  # the open transaction that it belongs to
    _restored: str  # why its queue waits for a person


def of_end(status: Result) -> MessageRow:
    """Return what a list shows of an end: when, how long the attempt ran and waited."""
    facts = {
        "ended": status.get("finished"),
        "run_us": status.get("run_us"),
        "wait_us": status.get("wait_us"),
        "cause": status.get("cause"),
    }
    given = {name: value for name, value in facts.items() if value is not None}
    return cast(MessageRow, given)
