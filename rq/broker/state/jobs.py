"""The jobs of a broker and their queues: what is there, and what an event changes. Pure.

`Jobs.apply` is the only place that changes them, live and when the journal is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile

from sortedcontainers import SortedDict

from rq.broker.state import spread
from rq.broker.state.body import Place, Weight
from rq.broker.state.bounds import MOST_NUMBER
from rq.broker.state.deadlines import Deadlines
from rq.broker.state.freeing import Freeing
from rq.broker.state.job import (
    HERE_ONLY,
    MOVED,
    Acked,
    Added,
    Buried,
    Copied,
    Event,
    Flushed,
    Given,
    Job,
    Leaving,
    Newest,
    Paused,
    Put,
    Queue,
    Queued,
    Removed,
    State,
    in_order,
)
from rq.broker.state.spread import BURIED, Spread, Spreads


class Jobs:
    """All jobs and queues of a node."""

    def __init__(self) -> None:
        self.last_ctime = 0
        self.leaving = False  # this node its cluster
        self.freeing = Freeing()
        self.spreads = Spreads()
        self.deadlines: Deadlines[Job] = Deadlines()
        self._last_queue = 0
        self._changes: Mapping[type[Event], Callable[..., None]] = {
            Added: self._add,
            Removed: self._removed,
            Given: self._give,
            Queued: self._queue,
            Put: self._put,
            Copied: self._copied,
            Acked: self._acked,
            Buried: self.spreads.bury,
            Paused: self._paused,
            Newest: self._newest,
            Flushed: self._flush,
            Leaving: self._leave,
        }
        self._clear()

    def _clear(self) -> None:
        self.by_id: dict[str, Job] = {}
        self.by_age = in_order()
        self.queues: dict[bytes, Queue] = {}
        self.queues_by_number: SortedDict[int, Queue] = SortedDict()
        self.resting: dict[bytes, Queue] = {}  # forgotten, with jobs handed out
        # Jobs that may be over (`Job.is_spent`), the first handed out first. A plain
        # dict would walk over all that has left its head.
        self.spent: OrderedDict[str, None] = OrderedDict()
        self.weight = Weight()
        self._last = 0.0, 0.0, 0.0  # see `_share`
        self.deadlines.clear()

    # ---- looking

    def queue(self, name: bytes, now: float) -> Queue:
        """Return a queue, made if it is not there yet."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self._come(name, now)
        return queue

    def _come(self, name: bytes, now: float) -> Queue:
        self._last_queue += 1
        queue = self.resting.pop(name, None)
        if queue is None:
            queue = Queue(name, self._last_queue, now)
        else:
            queue.come_again(self._last_queue, now)
        self.queues[name] = self.queues_by_number[queue.number] = queue
        return queue

    def jobs_after(self, ctime: int, count: int) -> list[Job]:
        """Return the first jobs that are younger than that; a few more where several
        nodes have made jobs at the same time, so that the next call leaves none out."""
        after = self.by_age.irange_key(ctime, inclusive=(False, True))
        jobs = list(islice(after, count))
        jobs += takewhile(lambda job: job.ctime == jobs[-1].ctime, after)
        return jobs

    def queues_after(self, number: int, count: int) -> list[Queue]:
        """Return the first queues that came later than that one."""
        if not number and len(self.queues) <= count:  # as most of the time
            return list(self.queues.values())
        after = self.queues_by_number.irange(number, inclusive=(False, True))
        return [self.queues_by_number[each] for each in islice(after, count)]

    def due(self, now: float, most: int) -> list[Job]:
        """Return jobs about which something is to be done by now, looking at up to
        `most`; each is looked at again when it is told about in `apply`."""
        return self.deadlines.due(now, most)

    def postpone(self, job: Job, due: float, now: float) -> None:
        """Make a job due later."""
        job.due = due
        self.deadlines.move(job, job.wakes, max(now, job.created))
        if self.spreads.by_job:
            self.spreads.follow(job.job_id, due, now)

    def hold(self, job: Job, until: float, now: float) -> None:
        """Keep a job that comes at most once out of its queue until then. A start finds
        it as it was."""
        self._take_out(job)
        job.was_queued = False  # that it comes is no other delivery
        if (spread := self.spreads.by_job.get(job.job_id)) is not None:
            spread.announces = False
        self.postpone(job, max(job.due, until), now)

    def count(self, job: Job, nacks: int, deliveries: int) -> None:
        """Count what happened to a job on another node, as well as it is known."""
        job.nacks = min(MOST_NUMBER, job.nacks + nacks)
        job.deliveries = min(MOST_NUMBER, job.deliveries + deliveries)

    # ---- changing

    def expire_from(self, at: float) -> None:
        """Expire no job of those that are there before `at`."""
        for job in self.by_id.values():
            if job.expires < at:
                job.expire_from(at)
                self.postpone(job, job.due, at)

    def begin(self, now: float) -> None:
        """What queues count, they count from now on."""
        for queue in self.queues.values():
            queue.came = queue.used = now
            queue.jobs_in = queue.jobs_out = 0

    def forget_queue(self, queue: Queue) -> None:
        """Forget a queue in which no jobs are; with the next one it comes again."""
        del self.queues[queue.name]
        del self.queues_by_number[queue.number]
        if queue.held:
            queue.rest()
            self.resting[queue.name] = queue

    def apply(self, event: Event, now: float) -> None:
        """Apply an event, once or again; one of a job that is gone changes nothing."""
        self._changes[type(event)](event, now)

    def _removed(self, event: Removed, now: float) -> None:
        for job_id in event.jobs:
            self._end(job_id, event.why, now)

    def _put(self, event: Put, now: float) -> None:
        if (job := self.by_id.get(event.job)) is not None:
            self._take_out(job)
            job.state = State.ACTIVE
            self.postpone(job, event.due, now)
            if not event.due:
                self.spent[job.job_id] = None

    def _paused(self, event: Paused, now: float) -> None:
        queue = self.queue(event.queue, now)
        queue.into, queue.out = event.into, event.out

    def _newest(self, event: Newest, _now: float) -> None:
        self.last_ctime = max(self.last_ctime, event.ctime)

    def _leave(self, event: Leaving, _now: float) -> None:
        self.leaving = event.leaving

    def _copied(self, event: Copied, now: float) -> None:
        """Note where copies of a job are."""
        job = self.by_id.get(event.job)
        if job is None:
            return
        self.spreads.copied(event, job.job_id)
        if event.waits:
            self._take_out(job)
            job.state = State.WAIT_REPL
        if job.state is not State.ACKED:
            self.spreads.follow(job.job_id, job.due, now)

    def _acked(self, event: Acked, now: float) -> None:
        job = self.by_id.get(event.job)
        if job is not None:
            self._take_out(job)
            job.state = State.ACKED
            self.postpone(job, 0.0, now)
        if job is not None or event.expires:
            self.spreads.acked(event, now)

    def _end(self, job_id: str, why: str, now: float) -> None:
        """Remove a job, and remember that it is gone, if other nodes know of it."""
        job = self.by_id.get(job_id)
        if job is not None:
            self._remove(job)
        if job_id not in self.spreads.by_job:
            return
        if job is None:
            until = now + BURIED
        elif why == MOVED and job.retry:
            until = now  # it may come back
        elif job.retry:
            until = min(job.expires, now + max(BURIED, 2 * job.retry))
        else:
            until = job.expires
        self.spreads.end(job_id, until, why not in HERE_ONLY, now)

    def put_away(self, job_id: str, body: bytes, place: Place) -> None:
        """Note that a body lies in a file now, if its job is there and has it."""
        job = self.by_id.get(job_id)
        if job is not None and job.body is body:
            job.body = place
            self.weight.drop(body)
            self.weight.add(place)

    def _add(self, added: Added, now: float) -> None:
        if added.job in self.by_id:
            return
        job = Job(added, self.queue(added.queue, now))
        self._share(job)
        self.by_id[added.job] = job
        self.by_age.add(job)
        job.queue.held += 1
        self.weight.add(job.body)
        self.last_ctime = max(self.last_ctime, job.ctime)
        job.at = job.wakes
        self.deadlines.add(job, max(now, job.created))
        if added.queued:
            self._put_in(job, now)

    def _share(self, job: Job) -> None:
        """Share equal times of jobs that follow each other, as one object: each takes 24
        bytes, and those that are read from disk are all new."""
        if (job.ttl, job.retry, job.delay) == self._last:
            job.ttl, job.retry, job.delay = self._last
        self._last = job.ttl, job.retry, job.delay

    def _queue(self, event: Queued, now: float) -> None:
        job = self.by_id.get(event.job)
        if job is None:
            return
        job.nacks, job.deliveries = event.nacks, event.deliveries
        self.postpone(job, event.due, now)
        if self.spreads.by_job:
            self.spreads.queued(job.job_id)
        if job.state is not State.QUEUED:
            self._put_in(job, now)

    def _put_in(self, job: Job, now: float) -> None:
        job.state, job.was_queued = State.QUEUED, True
        if not job.queue.number:
            self._come(job.queue.name, now)
        job.queue.jobs.add(job)
        job.queue.jobs_in += 1
        job.queue.used = now

    def _give(self, event: Given, now: float) -> None:
        job = self.by_id.get(event.job)
        if job is None:
            return
        self._take_out(job)
        if job.due != event.due:
            self.postpone(job, event.due, now)
        if not event.due:
            self.spent[job.job_id] = None
        job.given = True
        job.queue.jobs_out += 1
        job.queue.used = now

    def _take_out(self, job: Job) -> None:
        if job.state is State.QUEUED:
            job.state = State.ACTIVE
            job.queue.jobs.discard(job)

    def _remove(self, job: Job) -> None:
        self._take_out(job)
        job.queue.held -= 1
        if not (job.queue.number or job.queue.held):
            del self.resting[job.queue.name]
        if self.spent:
            self.spent.pop(job.job_id, None)
        self.weight.drop(job.body)
        self.deadlines.cancel(job)
        self.by_age.remove(job)
        del self.by_id[job.job_id]

    def _flush(self, event: Flushed, _now: float) -> None:
        """Drop all up to a job, the newest one but when a snapshot knows newer ones."""
        ctime = event.ctime
        newer = list(self.by_age.irange_key(ctime, inclusive=(False, True)))
        if newer:
            for job in list(self.by_age.irange_key(max_key=ctime)):
                self._remove(job)
                self.spreads.end(job.job_id, 0.0, False, 0.0)
            for queue in self.queues.values():
                queue.into = queue.out = False
            return
        self.freeing.add(self.spreads.by_job, self.spreads.clear())
        self.freeing.add(self.by_age, self.by_age.pop)
        self.freeing.add(self.queues_by_number, self.queues_by_number.popitem)
        by_id, queues, deadlines = self.by_id, self.queues, self.deadlines

        def free_job() -> None:
            deadlines.cancel(by_id.popitem()[1])

        def free_queue() -> None:
            jobs = queues.popitem()[1].jobs
            self.freeing.add(jobs, jobs.pop)

        self.freeing.add(by_id, free_job)
        self.freeing.add(queues, free_queue)
        self._clear()


_SLICE = 200


def events_of(jobs: Jobs) -> Iterator[Iterable[Event]]:
    """Give the events that make the jobs and queues what they are, some at a time."""
    yield [Newest(jobs.last_ctime), Leaving(jobs.leaving)]
    number = ctime = 0
    while queues := jobs.queues_after(number, _SLICE):
        number = queues[-1].number
        paused = [queue for queue in queues if queue.into or queue.out]
        yield [Paused(queue.name, queue.into, queue.out) for queue in paused]
    while some := jobs.jobs_after(ctime, _SLICE):
        ctime = some[-1].ctime
        yield [event for job in some for event in _of_job(job)]
        spreads = jobs.spreads.by_job
        yield [
            event
            for job in some
            if (copies := spreads.get(job.job_id)) is not None
            for event in _of_copies(job, copies)
        ]
    yield from spread.events_of(jobs.spreads)


def _of_copies(job: Job, copies: Spread) -> Iterator[Event]:
    """Give the events that make the copies of a job what they are."""
    waits = job.state is State.WAIT_REPL
    yield spread.copied_of(copies)._replace(waits=waits)
    if job.state is State.ACKED:
        yield Acked(job.job_id, 0.0)


def _of_job(job: Job) -> Iterator[Event]:
    """Give the events that make a job what it is."""
    due, queued = job.due, job.state is State.QUEUED
    yield Added(
        job.job_id,
        job.queue.name,
        job.body,
        job.ctime,
        job.created,
        job.ttl,
        job.retry,
        job.delay,
        due,
        queued and not (job.nacks or job.deliveries),
    )
    if job.nacks or job.deliveries or (job.was_queued and not queued):
        yield Queued(job.job_id, due, job.nacks, job.deliveries)
        if not queued:
            yield Given(job.job_id, due)
