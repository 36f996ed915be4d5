"""The children of the supervisor as values: what each is, what is wanted, what is next.

Decides, starts and ends nothing. `wanted` and `state` are two fields: commands change
the first, events of the machine the second, and `step` says how to bring them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rq import back_off
from rq.replies import ChildView
from rq.words.states import Child, ChildEvent, next_child

STABLE = 60.0  # seconds up, after which earlier failures are forgotten
LATE = 60.0  # seconds of starting, after which `status` says so
PARKING = 10.0  # seconds from when a queue hands over its socket to when it is killed
HELPER_SILENCE = 120.0  # seconds of starting, after which a helper is killed
DO_NOT_RESTART = 3  # exit status of a queue that only a person can mend
DISPLACED = 4  # of one that has lost its directory


class Kind(StrEnum):
    """What a child does."""

    QUEUE = "queue"
    FORKS = "forks"  # the fork server
    SCANDIR = "scandir"
    TIMERS = "timers"
    WEB = "web"
    INDEX = "index"
    BROKER = "broker"


class Step(StrEnum):
    """What is to be done with a child now."""

    START = "start"
    STOP = "stop"
    KILL = "kill"


@dataclass(slots=True, kw_only=True)
class Process:
    """A child: what is wanted of it, how it is, and since when."""

    kind: Kind
    name: str
    wanted: bool = True
    state: Child = Child.DOWN
    pid: int | None = None
    since: float = 0.0  # monotonic, of the last change of state
    restarts: int = 0
    failures: int = 0  # ends in a row that were not asked for
    reason: str = ""  # why it is not up, in a sentence
    held: str = ""  # an address on which it should listen, and another process does
    stop_again: bool = False  # a restart was asked for
    killed: bool = False  # KILL was sent in this state
    log_from: int = 0  # bytes of its log that were there when it was started
    place: tuple[int, int] | None = None  # the directory of its journal, when it began
    patience: float = 30.0  # seconds from TERM to KILL
    wakes_at: float | None = None  # monotonic: when it is started that is parked
    ends_by: float | None = (
        None  # monotonic: it has handed over its socket, and is to end
    )

    @property
    def running(self) -> bool:
        return self.state in (Child.STARTING, Child.UP, Child.STOPPING)

    @property
    def start_at(self) -> float:
        """When a child in BACKOFF is started again (monotonic)."""
        return self.since + back_off.delay(self.failures)

    def started(self, now: float) -> None:
        self._fire(ChildEvent.START, now)
        self.pid, self.held, self.ends_by = None, "", None
        self.stop_again = self.killed = False

    def ready(self, now: float) -> None:
        self._fire(ChildEvent.READY, now)
        self.reason = ""

    def stopping(self, now: float) -> None:
        self._fire(ChildEvent.STOP, now)
        self.stop_again = False
        self.killed = False

    def parking(self, now: float) -> None:
        """Note that a process has handed over its socket: nothing answers there until it has
        ended, so that must not take long."""
        self.ends_by = now + PARKING

    def parked(self, now: float, seconds: float | None) -> None:
        """Note the end of a process that has handed over its socket; it is started again
        in so many seconds, None: when it is woken."""
        self._fire(ChildEvent.PARK, now)
        self.pid, self.reason, self.failures = None, "", 0
        self.wakes_at = None if seconds is None else now + seconds

    def wake(self, now: float) -> None:
        """Let it be started now if it is parked."""
        if self.state is Child.PARKED:
            self.wakes_at = now

    def ended(self, now: float, status: int | None, reason: str) -> None:
        """Note the end of the process; `status` None when it is not known."""
        was, up_for = self.state, now - self.since
        self._fire(ChildEvent.EXIT, now)
        self.pid = None
        if self.state is Child.DOWN:
            self.reason, self.failures = "", 0
            return
        if was is Child.UP and up_for >= STABLE:
            self.failures = 0
        self.failures += 1
        self.restarts += 1
        self.reason = reason
        if status in (DO_NOT_RESTART, DISPLACED):
            self._fire(ChildEvent.GIVE_UP, now)

    def revive(self) -> None:
        """Let a child that waits or was given up start at once."""
        self.failures = 0
        self.wake(0.0)
        if self.state is Child.FATAL:
            self.state = next_child(Child.FATAL, ChildEvent.STOP)

    def _fire(self, event: ChildEvent, now: float) -> None:
        self.state = next_child(self.state, event)
        self.since = now

    def to_json(self, now: float, wall: float) -> ChildView:
        return {
            "name": self.name,
            "kind": self.kind,
            "state": self.state,
            "wanted": "UP" if self.wanted else "DOWN",
            "pid": self.pid,
            "since": round(wall - (now - self.since), 3),
            "restarts": self.restarts,
            "reason": self.reason or late_sentence(self, now),
            "held": self.held,
        }


def step(process: Process, now: float) -> Step | None:
    """Return what is to be done with `process` now."""
    state = process.state
    if _hangs(process, now):
        return Step.KILL
    if state is Child.STOPPING:
        late = now - process.since >= process.patience and not process.killed
        return Step.KILL if late else None
    if not process.wanted:
        return None if state is Child.DOWN else Step.STOP
    if state is Child.PARKED:
        is_woken = process.wakes_at is not None and now >= process.wakes_at
        return Step.START if is_woken else None
    if state is Child.DOWN or (state is Child.BACKOFF and now >= process.start_at):
        return Step.START
    if process.stop_again and process.running:
        return Step.STOP
    if state is not Child.STARTING or process.kind is Kind.QUEUE or process.killed:
        return None  # a queue may be reading ten million messages: shown, not killed
    return Step.KILL if now - process.since >= HELPER_SILENCE else None


def _hangs(process: Process, now: float) -> bool:
    """Whether it has handed over its socket, and did not end."""
    is_late = process.ends_by is not None and now >= process.ends_by
    return is_late and process.running and not process.killed


def wake_at(process: Process) -> float | None:
    """Return when `step` may next have something to say without an event."""
    if process.state is Child.BACKOFF:
        return process.start_at
    if process.state is Child.PARKED:
        return process.wakes_at
    if process.killed:
        return None
    if process.ends_by is not None and process.running:
        return process.ends_by
    if process.state is Child.STOPPING:
        return process.since + process.patience
    if process.state is Child.STARTING and process.kind is not Kind.QUEUE:
        return process.since + HELPER_SILENCE
    return None


def late_sentence(process: Process, now: float) -> str:
    """Say that a child takes long to start or to stop; "" when it does not."""
    seconds = int(now - process.since)
    if process.state is Child.STARTING and seconds >= LATE:
        return f"starting for {seconds} s: its process lives and is not ready yet"
    if process.state is Child.STOPPING and seconds >= LATE:
        return f"stopping for {seconds} s"
    return ""
