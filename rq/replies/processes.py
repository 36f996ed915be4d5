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


class HelperState(TypedDict, total=False):
    """What a helper has written about itself."""

    errors: Mapping[str, str]
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
    last: float | None  # epoch seconds
    result: str
    error: str


class NextFire(TypedDict):
    """A fire that is to come."""

    name: str
    at: float  # epoch seconds
    local: str  # the same as a clock in its zone shows it


class FireView(TypedDict):
    """A fire that was."""

    nominal: float  # epoch seconds; what names it
    tried: float  # epoch seconds
    said: str  # sent, run, or why there is no message
    url: str  # of its message; "": there is none
    outcome: str  # the state in which the message was last seen


class TimerView(TimerRow, total=False):
    """`timer`: all of one."""

    next: Sequence[NextFire]
    fires: Sequence[FireView]  # the newest first


class TimersStatus(TypedDict):
    """`status`: all timers."""

    timers: Sequence[TimerRow]
    errors: Mapping[str, str]
    sent: int
    failed: int
