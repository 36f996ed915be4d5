"""The jobs of a broker and their queues: what is there, and what an event changes. Pure.

`Jobs.apply` is the only place that changes them, live and when the journal is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from sortedcontainers import SortedList


class Added(NamedTuple):
    """A job was taken."""

    job: str
    queue: bytes
    body: bytes
    ctime: int  # nanoseconds: its place in its queue
    created: float  # seconds of the broker's clock
    ttl: float
    retry: float
    delay: float
    due: float  # when it comes into its queue, the next time; 0: never
    queued: bool  # whether it is in it from the start


class Queued(NamedTuple):
    """A job came into its queue again, or for the first time."""

    job: str
    due: float  # when it comes again
    nacks: int
    deliveries: int  # beyond the first


class Given(NamedTuple):
    """A job was handed to a client."""

    job: str
    due: float  # when it comes again; 0: never


class Put(NamedTuple):
    """A job is out of its queue until it is due."""

    job: str
    due: float


class Removed(NamedTuple):
    """Jobs are gone: acknowledged, deleted, or their time is over."""

    jobs: tuple[str, ...]
    why: str


class Paused(NamedTuple):
    """What goes neither into a queue, nor out of it."""

    queue: bytes
    into: bool
    out: bool


class Newest(NamedTuple):
    """No job may have an earlier place than this from now on."""

    ctime: int


Event = Added | Queued | Given | Put | Removed | Paused | Newest
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
            case Removed():
                for job_id in event.jobs:
                    self._change(job_id, event, now)
            case Queued() | Given() | Put():
                self._change(event.job, event, now)
            case Paused():
                queue = self.queue(event.queue, now)
                queue.into, queue.out = event.into, event.out
            case Newest():
                self.last_ctime = max(self.last_ctime, event.ctime)

    def _change(self, job_id: str, event: Event, now: float) -> None:
        job = self.by_id.get(job_id)
        if job is None:
            return
        match event:
            case Given():
                self._give(job, event.due, now)
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

    def _give(self, job: Job, due: float, now: float) -> None:
        self._take_out(job)
        if job.due != due:
            self.postpone(job, due)
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


_SLICE = 200


def events_of(jobs: Jobs) -> Iterator[Iterable[Event]]:
    """Give the events that make the jobs and queues what they are, some at a time."""
    yield [Newest(jobs.last_ctime)]
    paused = [queue for queue in jobs.queues.values() if queue.into or queue.out]
    yield [Paused(queue.name, queue.into, queue.out) for queue in paused]
    ids = list(jobs.by_id)
    for at in range(0, len(ids), _SLICE):
        some = (jobs.by_id.get(job_id) for job_id in ids[at : at + _SLICE])
        yield [event for job in some if job is not None for event in _of_job(job)]


def _of_job(job: Job) -> Iterator[Event]:
    """Give the events that make a job what it is."""
    due, queued = job.due, job.state is State.QUEUED
    yield Added(
        job.job_id,
        job.queue.name,
        job.body,
        job.ctime,
        job.created,
        job.expires - job.created,
        job.retry,
        job.delay,
        due,
        queued and not (job.nacks or job.deliveries),
    )
    if job.nacks or job.deliveries or (job.was_queued and not queued):
        yield Queued(job.job_id, due, job.nacks, job.deliveries)
        if not queued:
            yield Given(job.job_id, due)
