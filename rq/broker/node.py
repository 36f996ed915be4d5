"""One node of the broker: (state, now, command or timer) to (state, outputs). Pure.

No socket, clock, disk or randomness is inside: `now` is an argument, in seconds of the
broker's clock, and what is drawn comes from the generator that it is given. Outputs are
`events`, which are made durable, and `answers` to clients that waited; whoever runs a
node takes both, and sends nothing before the events are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from rq.broker import ids
from rq.broker.jobs import Job, Jobs, Queue, State
from rq.broker.lines import Added, Event, Given, Paused, Put, Queued, Removed
from rq.broker.resp import NIL_ARRAY, Value
from rq.broker.waiters import Waiter, Waiters

JITTER = 0.25  # seconds: copies of a job do not act in the same moment
IDLE = 300.0  # seconds until an empty queue is forgotten
_LOOK = 10.0  # seconds between two looks for such queues


class Node:
    """The state of a node, and what it gives out."""

    def __init__(self, node_id: str, random: Random) -> None:
        self.node_id = node_id
        self.random = random
        self.jobs = Jobs()
        self.waiters = Waiters()
        self.events: list[Event] = []  # to be made durable
        self.answers: list[tuple[int, Value]] = []  # to clients that waited
        self.must_sync = False  # before anything is answered
        self.handed: list[tuple[int, str]] = []  # client, job: since the last answers
        self._look_at = 0.0

    def emit(self, event: Event, now: float, *, sync: bool = True) -> None:
        """Let an event be true; `sync`: nobody is told before it is durable."""
        self.events.append(event)
        self.must_sync = self.must_sync or sync
        self.jobs.apply(event, now)

    # ---- jobs

    def add(
        self,
        queue: bytes,
        body: bytes,
        *,
        ttl: float,
        delay: float,
        retry: float,
        now: float,
        wall_ms: int,
    ) -> str:
        """Take a job; return its id. `wall_ms` is the time of day in milliseconds."""
        ctime = max(wall_ms * 1_000_000, self.jobs.last_ctime + 1)
        drawn = self.random.randbytes(ids.RANDOM)
        job_id = ids.job_id(self.node_id, drawn, ttl, retry)
        due = now + delay if delay else self._again(retry, now)
        added = Added(
            job_id, queue, body, ctime, now, ttl, retry, delay, due, not delay
        )
        self.emit(added, now)
        return job_id

    def enqueue(self, job: Job, now: float, *, nack: bool = False) -> bool:
        """Let a job come into its queue; False: it cannot, or is there already."""
        if job.state is not State.ACTIVE or not job.due:
            return False
        again = job.was_queued
        nacks = job.nacks + nack
        deliveries = job.deliveries + (again and not nack)
        due = self._again(job.retry, now)
        self.emit(Queued(job.job_id, due, nacks, deliveries), now)
        return True

    def give(self, queue: Queue, client: int, now: float) -> Job | None:
        """Hand the first job of a queue to a client; None: there is none."""
        if not queue.jobs or queue.out:
            return None
        job = self.jobs.by_id[queue.jobs[0][1]]
        # One that comes at most once must not come again after a power cut.
        self.emit(Given((job.job_id,)), now, sync=not job.retry)
        self.handed.append((client, job.job_id))
        return job

    def take_back(self, job_id: str, now: float) -> None:
        """A client was handed a job, and cannot have had a byte of the answer: let it
        be as it was."""
        job = self.jobs.by_id.get(job_id)
        if job is None or job.state is not State.ACTIVE:
            return
        due = self._again(job.retry, now)
        self.emit(Queued(job_id, due, job.nacks, job.deliveries), now)
        self.serve(job.queue.name, now)

    def give_many(
        self, queues: Sequence[bytes], count: int, client: int, now: float
    ) -> list[tuple[Queue, Job]]:
        """Take up to `count` jobs, one of each queue in turn."""
        given: list[tuple[Queue, Job]] = []
        progress = True
        while progress and len(given) < count:
            progress = False
            for name in queues:
                queue = self.jobs.queue(name, now)
                queue.used = now
                if len(given) == count:
                    break
                job = self.give(queue, client, now)
                if job is not None:
                    given.append((queue, job))
                    progress = True
        return given

    def postpone(self, job: Job, now: float) -> None:
        """Let a job be worked on: it comes again a whole `retry` from now."""
        due = now + job.retry + self._jitter() if job.retry else job.due
        self.emit(Put(job.job_id, due), now)

    def dequeue(self, job: Job, now: float) -> bool:
        """Take a job out of its queue until it is due again; False: it is not there."""
        if job.state is not State.QUEUED or not job.retry:
            return False
        self.emit(Put(job.job_id, job.due), now)
        return True

    def remove(self, job_ids: Iterable[str], why: str, now: float) -> int:
        """Remove the jobs that are there; return how many."""
        known = tuple(
            dict.fromkeys(each for each in job_ids if each in self.jobs.by_id)
        )
        if known:
            self.emit(Removed(known, why), now)
        return len(known)

    def flush(self, now: float) -> None:
        """Remove all jobs and queues; those who wait for a job are told that there is
        none."""
        every = list(self.jobs.by_id)
        for at in range(0, len(every), 1000):
            self.emit(Removed(tuple(every[at : at + 1000]), "flushed"), now)
        for name, queue in list(self.jobs.queues.items()):
            if queue.paused != "none":
                self.emit(Paused(name, into=False, out=False), now)
            del self.jobs.queues[name]
        for client in self.waiters.clients():
            self.waiters.remove(client)
            self.answers.append((client, NIL_ARRAY))

    def pause(self, name: bytes, into: bool, out: bool, now: float) -> None:
        """Set what of a queue is paused."""
        queue = self.jobs.queues.get(name)
        if queue is None and not (into or out):
            return
        if queue is None or (queue.into, queue.out) != (into, out):
            self.emit(Paused(name, into, out), now)
        self.serve(name, now)

    def _again(self, retry: float, now: float) -> float:
        """Return when a job comes again that comes into its queue now; 0: never."""
        return now + retry + self._jitter() if retry else 0.0

    def _jitter(self) -> float:
        return self.random.uniform(-JITTER, JITTER)

    # ---- clients that wait

    def serve(self, name: bytes, now: float) -> None:
        """Give a job each to those who wait at a queue, as long as there are some."""
        queue = self.jobs.queues.get(name)
        while queue is not None and (waiter := self.waiters.first(name)) is not None:
            job = self.give(queue, waiter.client, now)
            if job is None:
                return
            self.waiters.remove(waiter.client)
            self.answers.append((waiter.client, [shown(queue, job, waiter.counters)]))

    def hung_up(self, client: int) -> None:
        """A client is gone."""
        self.waiters.remove(client)

    def wait(self, waiter: Waiter) -> None:
        """Answer a client when there is a job for it, or its time is over."""
        self.waiters.add(waiter)

    # ---- time

    def next_tick(self) -> float | None:
        """Return when `tick` has something to do; None: never."""
        times = (self.jobs.next_due(), self.waiters.next_end())
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float, most: int = 1000) -> None:
        """Do what is due by now, for `most` jobs at a time."""
        for number, job in enumerate(self.jobs.due(now), 1):
            self._act(job, now)
            if number >= most:
                break
        for client in self.waiters.ended(now):
            self.answers.append((client, NIL_ARRAY))
        if now >= self._look_at:
            self._look_at = now + _LOOK
            self._forget_queues(now)

    def _act(self, job: Job, now: float) -> None:
        """Do what is due about a job. Only what the clients see has a line: that the time
        of a job is over, or that it waits on in its queue, follows from its other lines."""
        if job.expires <= now:
            self.emit(Removed((job.job_id,), "expired"), now, sync=False)
        elif job.state is State.QUEUED or (job.queue.into and job.retry):
            self.jobs.postpone(job, now + max(job.retry, 1.0) + self._jitter())
        else:
            self.enqueue(job, now)
            self.serve(job.queue.name, now)

    def _forget_queues(self, now: float) -> None:
        """Forget queues that are empty, not paused, and that nobody has used for long."""
        for name, queue in list(self.jobs.queues.items()):
            unused = not queue.held and queue.used + IDLE <= now
            if unused and queue.paused == "none" and not self.waiters.count(name):
                del self.jobs.queues[name]


def shown(queue: Queue, job: Job, counters: bool) -> Value:
    """Return a job as GETJOB and QPEEK give it."""
    plain: list[Value] = [queue.name, job.job_id, job.body]
    if counters:
        plain += ["nacks", job.nacks, "additional-deliveries", job.deliveries]
    return plain
