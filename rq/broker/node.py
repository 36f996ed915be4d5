"""One node of the broker: (state, now, command or timer) to (state, outputs). Pure.

No socket, clock, disk or randomness is inside: `now` is an argument, in seconds of the
broker's clock, and what is drawn comes from the generator that it is given. Outputs are
`events`, which are made durable, and `answers` to clients that waited; whoever runs a
node takes both, and sends nothing before the events are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from rq.broker import groups, ids, jobs, reliable
from rq.broker.groups import EventQueues
from rq.broker.jobs import (
    Added,
    Given,
    Job,
    Jobs,
    Paused,
    Put,
    Queue,
    Queued,
    Removed,
    State,
)
from rq.broker.lines import Event
from rq.broker.reliable import ReliableQueues
from rq.broker.waiters import Waiters
from rq.resp import NIL_ARRAY, Value

JITTER = 0.25  # seconds: copies of a job do not act in the same moment
IDLE = 300.0  # seconds until an empty queue is forgotten
_LOOK = 10.0  # seconds between two looks for such queues


@dataclass(frozen=True, slots=True)
class Getting:
    """What a client of bananaq waits for."""

    group: bytes
    seconds: float  # that it has for an event
    only_told: bool = False  # it asks in which queue there is one


class Node:
    """The state of a node, and what it gives out."""

    def __init__(self, node_id: str, random: Random) -> None:
        self.node_id = node_id
        self.random = random
        self.jobs = Jobs()
        self.reliable = ReliableQueues()
        self.groups = EventQueues()
        self.waiters: Waiters[bool] = Waiters(NIL_ARRAY)  # True: with counters
        self.poppers: Waiters[int] = Waiters(None)  # that many of a queue
        self.getters: Waiters[Getting] = Waiters(None)
        self.events: list[Event] = []  # to be made durable
        self.answers: list[tuple[int, Value]] = []  # to clients that waited
        self.must_sync = False  # before anything is answered
        self.handed: list[tuple[int, str]] = []  # client, job: since the last answers
        self._look_at = 0.0

    def emit(self, event: Event, now: float, *, sync: bool = True) -> None:
        """Let an event be true; `sync`: nobody is told before it is durable."""
        self.events.append(event)
        self.must_sync = self.must_sync or sync
        self.apply(event, now)

    def apply(self, event: Event, now: float) -> None:
        """Let an event be true, once or again: live, and when the journal is read."""
        if isinstance(event, jobs.Event):
            self.jobs.apply(event, now)
        elif isinstance(event, reliable.Event):
            self.reliable.apply(event)
        else:
            self.groups.apply(event)

    def events_of_all(self) -> Iterator[Iterable[Event]]:
        """Give the events that make all what it is, some at a time."""
        yield from jobs.events_of(self.jobs)
        yield from reliable.events_of(self.reliable)
        yield from groups.events_of(self.groups)

    @property
    def size(self) -> tuple[int, int]:
        """How many jobs, messages and events live, and the bytes of their bodies."""
        parts = (self.jobs, self.reliable, self.groups)
        number = len(self.jobs.by_id) + self.reliable.messages + self.groups.events
        return number, sum(part.body_bytes for part in parts)

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
        self.emit(Given(job.job_id, job.due), now, sync=not job.retry)
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
        there = tuple(
            dict.fromkeys(each for each in job_ids if each in self.jobs.by_id)
        )
        if there:
            self.emit(Removed(there, why), now)
        return len(there)

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
        for waiters in self._all_waiters:
            for client in waiters.clients():
                waiters.remove(client)
                self.answers.append((client, waiters.nothing))

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
            answer = [job_answer(queue, job, waiter.want)]
            self.answers.append((waiter.client, answer))

    def hung_up(self, client: int) -> None:
        """A client is gone."""
        for waiters in self._all_waiters:
            waiters.remove(client)

    @property
    def _all_waiters(self) -> tuple[Waiters[Any], ...]:
        return self.waiters, self.poppers, self.getters

    @property
    def blocked(self) -> int:
        """How many clients wait."""
        return sum(len(waiters) for waiters in self._all_waiters)

    # ---- messages of RedisRQ

    def push(
        self, key: bytes, bodies: Sequence[bytes], now: float, ms: int
    ) -> list[str]:
        """Take messages; return their ids. `ms` is the time of day in milliseconds."""
        queue = self.reliable.by_key.get(key) or reliable.ReliableQueue()
        ids = queue.next_ids(len(bodies), ms)
        self.emit(reliable.Pushed(key, ids, bodies), now)
        self.serve_poppers(key, now)
        return ids

    def pop(self, key: bytes, count: int, now: float) -> list[tuple[str, bytes]]:
        """Hand out the first messages of a queue."""
        queue = self.reliable.by_key.get(key)
        if queue is None or not queue.undelivered or count <= 0:
            return []
        some = list(islice(queue.undelivered.items(), count))
        ids = [msg_id for msg_id, _ in some]
        event = reliable.Popped(key, ids, [1] * len(ids), now)
        self.emit(event, now, sync=False)
        return some

    def serve_poppers(self, key: bytes, now: float) -> None:
        """Answer those who wait for messages of a queue, as long as there are some."""
        while (waiter := self.poppers.first(key)) is not None:
            some = self.pop(key, waiter.want, now)
            if not some:
                return
            self.poppers.remove(waiter.client)
            answer: list[Value] = [[key, msg_id, body] for msg_id, body in some]
            self.answers.append((waiter.client, answer))

    # ---- events of bananaq

    def get(
        self, name: bytes, group: bytes, seconds: float, now: float
    ) -> groups.Came | None:
        """Hand the next event of a queue to a group; `seconds` 0: it is done with it."""
        queue = self.groups.by_name.get(name)
        event = None if queue is None else queue.next_for(group)
        if event is not None:
            until = now + seconds if seconds else 0.0
            got = groups.Got(name, group, event.number, until)
            self.emit(got, now, sync=not seconds)
        return event

    def serve_getters(self, name: bytes, now: float) -> None:
        """Answer those who wait for an event of a queue, if there is one for them."""
        for waiter in self.getters.at(name):
            queue, getting = self.groups.by_name.get(name), waiter.want
            if queue is None or queue.next_for(getting.group) is None:
                continue
            self.getters.remove(waiter.client)
            if getting.only_told:
                self.answers.append((waiter.client, name))
                continue
            event = self.get(name, getting.group, getting.seconds, now)
            if event is not None:
                answer: list[Value] = [groups.text_of(event), event.contents]
                self.answers.append((waiter.client, answer))

    # ---- time

    def next_tick(self) -> float | None:
        """Return when `tick` has something to do; None: never."""
        times = [self.jobs.next_due(), self.groups.next_due()]
        times += [waiters.next_end() for waiters in self._all_waiters]
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: float, most: int = 1000) -> None:
        """Do what is due by now, for `most` jobs at a time."""
        for number, job in enumerate(self.jobs.due(now), 1):
            self._act(job, now)
            if number >= most:
                break
        for name in dict.fromkeys(self.groups.settle(now, most)):
            self.serve_getters(name, now)
        for waiters in self._all_waiters:
            ended = waiters.ended(now)
            self.answers += [(client, waiters.nothing) for client in ended]
        if now >= self._look_at:
            self._look_at = now + _LOOK
            self._forget_queues(now)

    def _act(self, job: Job, now: float) -> None:
        """Do what is due about a job. That it waits on in its queue has no line: when it
        is handed out its line tells when it comes again."""
        later = now + max(job.retry, 1.0) + self._jitter()
        if job.expires <= now:
            self.emit(Removed((job.job_id,), "expired"), now, sync=False)
        elif job.state is State.QUEUED:
            self.jobs.postpone(job, later)
        elif job.queue.into and job.retry:
            self.emit(Put(job.job_id, later), now, sync=False)
        else:
            self.enqueue(job, now)
            self.serve(job.queue.name, now)

    def _forget_queues(self, now: float) -> None:
        """Forget queues that are empty, not paused, and that nobody has used for long."""
        for name, queue in list(self.jobs.queues.items()):
            unused = not queue.held and queue.used + IDLE <= now
            if unused and queue.paused == "none" and not self.waiters.count(name):
                del self.jobs.queues[name]


def job_answer(queue: Queue, job: Job, counters: bool) -> Value:
    """Return a job as GETJOB and QPEEK give it."""
    plain: list[Value] = [queue.name, job.job_id, job.body]
    if counters:
        plain += ["nacks", job.nacks, "additional-deliveries", job.deliveries]
    return plain
