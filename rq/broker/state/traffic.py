"""How much comes into the queues of a node and is handed out: since the start, now, and in
each minute of the last hour. Pure.

Of each dialect at most so many queues are counted by name; those that were used last
stay.
"""

from __future__ import annotations

from array import array

from rq.broker.state import groups, job, reliable
from rq.broker.state.groups import EventQueues
from rq.broker.state.jobs import Jobs
from rq.broker.state.lines import Event
from rq.broker.state.reliable import ReliableQueues

DISQUE, REDISRQ, BANANAQ = "disque", "redisrq", "bananaq"
Name = tuple[str, bytes]  # a dialect, and a queue in it
MOST = 1000  # queues that are counted by name
MINUTES = 60  # that are kept
_WINDOW = 5.0  # seconds; what is told as now are the last of these
_MINUTE = 60.0


class Flow:
    """What came into one queue, and what was handed out. `came` and `went` are counted
    by the caller of `roll`, once `now` is `until`; all else follows from them."""

    __slots__ = (
        "_before",
        "_minute",
        "_of_minute",
        "_of_window",
        "_window",
        "came",
        "came_each",
        "depths",
        "until",
        "went",
        "went_each",
    )

    def __init__(self, now: float) -> None:
        self.came = self.went = 0
        # Of each minute, this one last.
        self.came_each = array("L", [0] * MINUTES)
        self.went_each = array("L", [0] * MINUTES)
        self.depths = array("L", [0] * MINUTES)
        self._minute = int(now // _MINUTE)
        self._window = int(now // _WINDOW)
        self.until = (self._window + 1) * _WINDOW  # then another window begins
        # What came and went before this minute and window, and in the window before.
        self._of_minute = self._of_window = self._before = (0, 0)

    def roll(self, depth: int, now: float) -> None:
        """Go on to now; `depth` jobs wait."""
        minute, window = int(now // _MINUTE), int(now // _WINDOW)
        self.came_each[-1] = self.came - self._of_minute[0]
        self.went_each[-1] = self.went - self._of_minute[1]
        self.depths[-1] = depth
        if minute > self._minute:
            over = min(minute - self._minute, MINUTES)
            for each, fill in (
                (self.came_each, 0),
                (self.went_each, 0),
                (self.depths, depth),
            ):
                each[:] = each[over:] + array("L", [fill] * over)
            self._minute, self._of_minute = minute, (self.came, self.went)
        if window > self._window:
            is_next = window == self._window + 1
            self._before = self._in_window if is_next else (0, 0)
            self._window, self._of_window = window, (self.came, self.went)
            self.until = (window + 1) * _WINDOW

    @property
    def _in_window(self) -> tuple[int, int]:
        return self.came - self._of_window[0], self.went - self._of_window[1]

    def rates(self, now: float) -> tuple[float, float]:
        """Return how many a second came, and were handed out, of late; `roll` was
        called."""
        part = now / _WINDOW - self._window
        this = self._in_window
        came, went = (
            (this[at] + self._before[at] * (1 - part)) / _WINDOW for at in (0, 1)
        )
        return came, went


class Traffic:
    """What moves in all queues of a node."""

    def __init__(
        self, jobs: Jobs, reliable: ReliableQueues, groups: EventQueues
    ) -> None:
        self.came = self.went = 0
        self._jobs = jobs
        self._reliable = reliable
        self._groups = groups
        self._flows: dict[str, dict[bytes, Flow]] = {
            DISQUE: {},
            REDISRQ: {},
            BANANAQ: {},
        }

    def take(self, event: Event, now: float) -> None:
        """Count an event, which is not yet applied. It is asked for each, so that it
        makes no object."""
        kind = type(event)
        if kind is job.Added:
            self._add(DISQUE, event.queue, 1, 0, now)  # type: ignore[union-attr]
        elif kind is job.Given:
            there = self._jobs.by_id.get(event.job)  # type: ignore[union-attr]
            if there is not None:
                self._add(DISQUE, there.queue.name, 0, 1, now)
        elif kind is reliable.Pushed:
            self._add(REDISRQ, event.key, len(event.ids), 0, now)  # type: ignore[union-attr]
        elif kind is reliable.Popped:
            self._add(REDISRQ, event.key, 0, len(event.ids), now)  # type: ignore[union-attr]
        elif kind is groups.Came:
            self._add(BANANAQ, event.queue, 1, 0, now)  # type: ignore[union-attr]
        elif kind is groups.Got:
            self._add(BANANAQ, event.queue, 0, 1, now)  # type: ignore[union-attr]

    def _add(self, dialect: str, name: bytes, came: int, went: int, now: float) -> None:
        self.came += came
        self.went += went
        flow = self._flows[dialect].get(name)
        if flow is None:
            flow = self._new(dialect, name, now)
        if now >= flow.until:
            flow.roll(self.depth((dialect, name)), now)
        flow.came += came
        flow.went += went

    def _new(self, dialect: str, name: bytes, now: float) -> Flow:
        flows = self._flows[dialect]
        if len(flows) >= 2 * MOST:
            by_use = sorted(flows.items(), key=lambda item: -item[1].until)
            flows = self._flows[dialect] = dict(by_use[:MOST])
        flow = flows[name] = Flow(now)
        return flow

    def depth(self, queue: Name) -> int:
        """Return how many jobs wait in a queue."""
        dialect, name = queue
        if dialect == DISQUE:
            return len(self._jobs.queues.get(name, ()))
        if dialect == REDISRQ:
            messages = self._reliable.by_key.get(name)
            return len(messages.undelivered) if messages else 0
        events = self._groups.by_name.get(name)
        return len(events.events) if events else 0

    def of(self, queue: Name, now: float) -> Flow:
        """Return what moves in a queue; nothing if it was not used of late."""
        dialect, name = queue
        flow = self._flows[dialect].get(name) or Flow(now)
        flow.roll(self.depth(queue), now)
        return flow
