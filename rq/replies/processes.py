"""What the supervisor and the timers answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


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
    held: str  # an address on which it should listen, and another process does


class TimerTrouble(TypedDict):
    """Why a person should look at a timer."""

    missed: int  # fires without a message that are not acknowledged
    more: bool  # there are more than were counted
    why: str  # the last of them were missed
    failed: str  # the URL of its last message, if that failed; "": it did not
    failed_why: str
    overdue: float | None  # epoch seconds since when a success is expected for too long


class HelperState(TypedDict, total=False):
    """What a helper has written about itself."""

    errors: Mapping[str, str]
    troubles: Mapping[str, TimerTrouble]  # of timers, by their names
    no_hints: str  # of scandir: why files are looked at by time alone


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
    displaced: Mapping[str, str]  # queues that lost their directory, and what to do
    held_timers: Sequence[str]  # of the Ruby RQ: they wait for the operator


class TimerRow(TypedDict, total=False):
    """A timer, or a file that is none."""

    name: str
    period: int | None  # seconds; None: it has a rule of cron
    cron: str | None
    timezone: str | None
    jitter: int  # seconds
    catch_up: str
    overlap: str
    dest: str | None
    due: float | None  # epoch seconds; None: it is paused
    paused: float | None  # epoch seconds since when
    last: float | None  # epoch seconds of the fire that the next counts from
    fired: float | None  # epoch seconds of the last fire, of the clock or by hand
    result: str
    error: str
    outcome: str  # the state in which the message of the last fire was last seen
    outcome_why: str  # why it failed, in what its script or RQ said last
    last_success: float | None  # epoch seconds
    missed: int  # fires without a message, since the process began
    expect: float | None  # seconds within which one has to succeed
    trouble: TimerTrouble | None  # why a person should look at it


class NextFire(TypedDict):
    """A fire that is to come."""

    name: str
    at: float  # epoch seconds
    local: str  # the same as a clock in its zone shows it


class FireView(TypedDict):
    """A fire that was."""

    number: int  # of its line in config/timers.fires
    nominal: float  # epoch seconds; what names it
    planned: float  # epoch seconds at which it should have been
    tried: float  # epoch seconds
    said: str  # sent, or run: by a person's word
    url: str  # of its message
    outcome: str  # the state in which the message was last seen
    cause: str
    text: str  # the last that was said
    ended: float | None  # epoch seconds


# A span of fires that were missed; a key of it is a word that Python keeps for itself.
MissView = TypedDict(
    "MissView",
    {
        "number": int,
        "from": float,  # epoch seconds of the first
        "to": float,  # epoch seconds of the last
        "count": int,
        "more": bool,  # there are more than were counted
        "why": str,
        "text": str,
        "at": float,  # epoch seconds at which it was noted
    },
)


class TimerMiss(MissView):
    """`misses`: a span of missed fires, of any timer."""

    timer: str
    queue: str  # of its messages; "": its file is there no more


class TimerView(TimerRow, total=False):
    """`timer`: all of one."""

    next: Sequence[NextFire]
    fires: Sequence[FireView]  # the newest first
    misses: Sequence[MissView]  # as well


class TimersStatus(TypedDict):
    """`status`: all timers."""

    timers: Sequence[TimerRow]
    errors: Mapping[str, str]
    sent: int
    failed: int
