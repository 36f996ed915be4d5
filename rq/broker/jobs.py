"""The jobs of a broker and their queues: what is there, and what an event changes. Pure.

`Jobs.apply` is the only place that changes them, live and when the journal is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import StrEnum

from sortedcontainers import SortedList

from rq.broker.lines import Added, Event, Given, Paused, Put, Queued, Removed

_FEW = 64  # dead entries of a heap that nobody minds


class State(StrEnum):
    """Where a job is; the words of SHOW and JSCAN."""

    WAIT_REPL = "wait-repl"  # its producer waits for copies elsewhere
    ACTIVE = "active"  # delayed, or a client has it
    QUEUED = "queued"
    ACKED = "acked"


class Job:
    """A job; times are seconds of the broker's clock."""

    __slots__ = (
        "body",
        "created",
        "ctime",
        "delay",
        "deliveries",
        "due",
        "expires",
        "given",
        "job_id",
        "nacks",
        "queue",
        "retry",
        "state",
        "was_queued",
    )

    def __init__(self, added: Added, queue: Queue) -> None:
        self.job_id = added.job
        self.queue = queue
        self.body = added.body
        self.ctime = added.ctime
        self.created = added.created
        self.expires = added.created + added.ttl
        self.retry = added.retry
        self.delay = added.delay
        self.due = added.due  # when it comes into its queue; 0: never again
        self.state = State.ACTIVE
        self.nacks = 0
        self.deliveries = 0  # beyond the first
        self.given = False
        self.was_queued = False

    @property
    def place(self) -> tuple[int, str]:
        """What its queue is sorted by."""
        return self.ctime, self.job_id

    @property
    def wakes(self) -> float:
        """When something is to be done about it."""
        return min(self.due, self.expires) if self.due else self.expires


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
        "out",
        "used",
    )

    def __init__(self, name: bytes, now: float) -> None:
        self.name = name
        self.jobs: SortedList[tuple[int, str]] = SortedList()
        self.held = 0  # jobs that belong to it, in it or not
        self.into = self.out = False  # whether it is paused in input, in output
        self.jobs_in = self.jobs_out = 0
        self.came = self.used = now

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def paused(self) -> str:
        """The word of PAUSE for it."""
        if self.into:
            return "all" if self.out else "in"
        return "out" if self.out else "none"


class Jobs:
    """All jobs and queues of a node."""

    def __init__(self) -> None:
        self.by_id: dict[str, Job] = {}
        self.queues: dict[bytes, Queue] = {}
        self.body_bytes = 0
        self.last_ctime = 0
        self._wakes: list[tuple[float, str]] = []

    # ---- looking

    def queue(self, name: bytes, now: float) -> Queue:
        """Return a queue, made if it is not there yet."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, now)
        return queue

    def due(self, now: float) -> Iterator[Job]:
        """Give the jobs about which something is to be done by now; each is looked at
        again when it is told about in `apply`."""
        while self._wakes and self._wakes[0][0] <= now:
            wakes, job_id = heapq.heappop(self._wakes)
            job = self.by_id.get(job_id)
            if job is not None and job.wakes == wakes:
                yield job

    def next_due(self) -> float | None:
        """Return when `due` has something to give; None: never."""
        while self._wakes:
            wakes, job_id = self._wakes[0]
            job = self.by_id.get(job_id)
            if job is not None and job.wakes == wakes:
                return wakes
            heapq.heappop(self._wakes)
        return None

    def wake(self, job: Job) -> None:
        """Look at a job when its time comes."""
        if len(self._wakes) > 2 * len(self.by_id) + _FEW:
            self._wakes = [(other.wakes, other.job_id) for other in self.by_id.values()]
            heapq.heapify(self._wakes)
        else:
            heapq.heappush(self._wakes, (job.wakes, job.job_id))

    # ---- changing

    def apply(self, event: Event, now: float) -> None:
        """Let an event be true, once or again; of a job that is gone nothing is."""
        match event:
            case Added():
                self._add(event, now)
            case Given() | Removed():
                for job_id in event.jobs:
                    self._change(job_id, event, now)
            case Queued() | Put():
                self._change(event.job, event, now)
            case Paused():
                queue = self.queue(event.queue, now)
                queue.into, queue.out = event.into, event.out

    def _change(self, job_id: str, event: Event, now: float) -> None:
        job = self.by_id.get(job_id)
        if job is None:
            return
        match event:
            case Given():
                self._give(job, now)
            case Removed():
                self._remove(job)
            case Queued():
                self._queue(job, event, now)
            case Put():
                self._take_out(job)
                self.postpone(job, event.due)
            case _:
                raise AssertionError(f"{event} is not of one job")

    def postpone(self, job: Job, due: float) -> None:
        """Let a job be due later."""
        job.due = due
        self.wake(job)

    def _add(self, added: Added, now: float) -> None:
        if added.job in self.by_id:
            return
        job = Job(added, self.queue(added.queue, now))
        self.by_id[added.job] = job
        job.queue.held += 1
        self.body_bytes += len(job.body)
        self.last_ctime = max(self.last_ctime, job.ctime)
        self.wake(job)
        if added.queued:
            self._put_in(job, now)

    def _queue(self, job: Job, event: Queued, now: float) -> None:
        job.nacks, job.deliveries = event.nacks, event.deliveries
        self.postpone(job, event.due)
        if job.state is not State.QUEUED:
            self._put_in(job, now)

    def _put_in(self, job: Job, now: float) -> None:
        job.state, job.was_queued = State.QUEUED, True
        job.queue.jobs.add(job.place)
        job.queue.jobs_in += 1
        job.queue.used = now

    def _give(self, job: Job, now: float) -> None:
        self._take_out(job)
        job.given = True
        job.queue.jobs_out += 1
        job.queue.used = now

    def _take_out(self, job: Job) -> None:
        if job.state is State.QUEUED:
            job.state = State.ACTIVE
            job.queue.jobs.discard(job.place)

    def _remove(self, job: Job) -> None:
        self._take_out(job)
        job.queue.held -= 1
        self.body_bytes -= len(job.body)
        del self.by_id[job.job_id]
