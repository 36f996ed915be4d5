"""Jobs of Disque, and the clients that wait for them. Pure.

A job is put into its queue, handed to a client, and removed when that acknowledges it.
The client may never do so: hence each job has a moment, `due`, at which it comes into
its queue again, and `expires`, at which it goes.

What is true at all times:

- A job stands in `Queue.jobs` exactly while its state is QUEUED. The order is that of
  creation (`ctime`), so a job that comes again stands before younger ones.
- `due` 0.0 means never again. A job with RETRY 0 comes at most once: `Given` sets its
  `due` to 0.0 and is synced before the reply leaves, so that no crash hands it out
  twice. A job with a RETRY needs no sync when it is handed out: after a crash it stands
  in its queue, and comes once more, as it may.
- A job that waits has a `due` as well. When that passes while the job still waits, `due`
  is set later in memory alone; the line that is written when the job is handed out holds
  the next one.
- At a queue clients are served in the order in which they came. A crowd is served in
  slices; until the rest is, the queue stands in `unserved`, and no new client takes a
  job from it.

What may happen:

- The reply with a job was not sent at all: `take_back` puts the job back at its place.
  If more has become of it since (acknowledged, or handed out again), its `due` or state
  differs, and nothing is done.
- Another node has a copy. Each node comes to its copy at a slightly different time, up to
  JITTER apart, and tells the others when it queues the job, so that one of them has it in its queue at a time.
- This node was away, and does not know which jobs others have done: `holding` keeps
  back the jobs that it had before, until they have told.
- A queue is used no more, and its name must not take memory for ever: it is forgotten,
  and made again when a job of it that was handed out comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from random import Random

from rq.broker.cluster.messages import IsQueued, Working
from rq.broker.desks.outlet import Outlet
from rq.broker.desks.returning import Holding
from rq.broker.state import ids
from rq.broker.state.body import size_of
from rq.broker.state.bounds import Room
from rq.broker.state.job import (
    Added,
    Flushed,
    Given,
    Job,
    Leaving,
    Paused,
    Put,
    Queue,
    Queued,
    Removed,
    State,
)
from rq.broker.state.jobs import Jobs
from rq.broker.state.waiters import Waiters
from rq.resp import NIL_ARRAY, Failure, Value

JITTER = 0.25  # seconds: copies of a job do not act in the same moment
IDLE = (300.0, 10.0, 2.0)  # seconds until an empty queue is forgotten, by memory level
LEAVING = Failure(
    "LEAVING This node is leaving the cluster, please connect to a different one"
)
_LOOK = 1.0  # seconds between two looks for such queues, at least
_REST = 9  # times as long as a look over all took there is none
_DRAWS = 64  # ids that are drawn at a time
_SOME = 200  # queues that are looked at in a turn
_AT_ONCE = 1_000  # clients that are answered in one go


class JobDesk:
    """Takes jobs, hands them out, and lets them come again."""

    def __init__(self, outlet: Outlet, random: Random) -> None:
        self.jobs = Jobs()
        self.waiters: Waiters[bool] = Waiters(NIL_ARRAY)  # True: with counters
        self.unserved: dict[
            bytes, None
        ] = {}  # queues at which more clients can be served
        self.holding = Holding(outlet, self.jobs.spreads)
        self._outlet = outlet
        self._random = random
        self._jitters = Random(random.getrandbits(64))  # needs no secret, and no call
        self._draws: list[bytes] = []  # for ids to come
        self.look_at = 0.0  # for unused queues
        self._look_began = 0.0
        self._looked_at = 0  # number of the queue

    def new(
        self,
        queue: bytes,
        body: bytes,
        *,
        ttl: float,
        delay: float,
        retry: float,
        now: float,
        wall_ms: int,
    ) -> Added:
        """Return the event that takes a job. `wall_ms`: the time of day, in milliseconds."""
        ctime = max(wall_ms * 1_000_000, self.jobs.last_ctime + 1)
        job_id = ids.job_id(self._outlet.node_id, self._drawn(), ttl, retry)
        due = now + delay if delay else self.again(retry, now)
        return Added(job_id, queue, body, ctime, now, ttl, retry, delay, due, not delay)

    def _drawn(self) -> bytes:
        """Return what the next id is made of: a call of the system gives that of many."""
        if not self._draws:
            drawn = self._random.randbytes(ids.RANDOM * _DRAWS)
            step = ids.RANDOM
            self._draws = [drawn[at : at + step] for at in range(0, len(drawn), step)]
        return self._draws.pop()

    def enqueue(self, job: Job, now: float, *, nack: bool = False) -> bool:
        """Put a job into its queue; False: it cannot be, or is there already."""
        if job.state is not State.ACTIVE or not job.due:
            return False
        spread = self.jobs.spreads.by_job.get(job.job_id)
        again = job.was_queued if spread is None else spread.announces
        nacks = job.nacks + nack
        deliveries = job.deliveries + (again and not nack)
        due = self.again(job.retry, now)
        self._outlet.emit(Queued(job.job_id, due, nacks, deliveries), now)
        if spread is not None and (again or nack):
            said = IsQueued(job.job_id, int(nack), int(not nack))
            for node in sorted(spread.may_have - {self._outlet.node_id}):
                self._outlet.send(node, said)
        return True

    def give(self, queue: Queue, client: int, now: float) -> Job | None:
        """Hand the first job of a queue to a client; None: there is none, or they are
        held."""
        if not queue.jobs or queue.out:
            return None
        job = next(self.holding.free(queue.jobs, now), None)
        if job is None:
            return None
        # One that comes at most once must not come again after a power cut.
        due = job.due
        if 0 < due <= now:  # it passed while the job waited, and was not seen yet
            due = self.again(job.retry, now)
        self._outlet.emit(Given(job.job_id, due), now, sync=not job.retry)
        self._outlet.hand(client, partial(self.take_back, job.job_id, due))
        if not queue.jobs:
            self._outlet.emptied(queue.name, now)
        return job

    def take_back(self, job_id: str, due: float, now: float) -> None:
        """A client was handed a job that was to come again at `due`, and cannot have had a
        byte of the reply: restore it, unless more has become of it since."""
        job = self.jobs.by_id.get(job_id)
        if job is None or job.state is not State.ACTIVE or job.due != due:
            return
        due = self.again(job.retry, now)
        self._outlet.emit(Queued(job_id, due, job.nacks, job.deliveries), now)
        self.serve(job.queue.name, now)

    def give_many(
        self, queues: Sequence[bytes], count: int, client: int, now: float
    ) -> list[tuple[Queue, Job]]:
        """Take up to `count` jobs, one of each queue in turn, as an answer has room."""
        given: list[tuple[Queue, Job]] = []
        room = Room()
        left = self._queues(queues, now)
        for queue in left:
            queue.used = now
        while left and len(given) < count:
            left, before = [], left
            for queue in before:
                if len(given) == count or room.left <= 0:
                    return given
                if queue.name in self.unserved:
                    continue  # clients that have waited longer come first
                job = self.give(queue, client, now)
                if job is not None:
                    room.left -= size_of(job.body)
                    given.append((queue, job))
                    left.append(queue)
        return given

    def _queues(self, names: Sequence[bytes], now: float) -> list[Queue]:
        """Return the queues of a consumer, new ones as well; but where half of the memory
        is used only those that there are: names alone must not keep producers out."""
        if self._outlet.has_plenty:
            return [self.jobs.queue(name, now) for name in names]
        there = map(self.jobs.queues.get, names)
        return [queue for queue in there if queue is not None]

    def postpone(self, job: Job, now: float) -> None:
        """A client works on a job: it comes again a whole `retry` from now. Where its
        producer still waits for copies, only the others hear of it."""
        due = now + job.retry + self._jitter() if job.retry else job.due
        if job.state is not State.WAIT_REPL:
            self._outlet.emit(Put(job.job_id, due), now)
        spread = self.jobs.spreads.by_job.get(job.job_id)
        if spread is not None:
            for node in sorted(spread.may_have - {self._outlet.node_id}):
                self._outlet.send(node, Working(job.job_id))

    def dequeue(self, job: Job, now: float) -> bool:
        """Take a job out of its queue until it is due again; False: it is not there."""
        if job.state is not State.QUEUED or not job.retry:
            return False
        self._outlet.emit(Put(job.job_id, job.due), now)
        return True

    def withhold(self, now: float) -> None:
        """Hand out no job that comes at most once: there is, or was, another copy of this
        directory, whose node has handed out some of them."""
        for job in list(self.jobs.by_id.values()):
            if job.comes_once:
                self._outlet.emit(Put(job.job_id, 0.0), now)

    def remove(self, job_ids: Iterable[str], why: str, now: float) -> int:
        """Remove the jobs that are there; return how many."""
        there = tuple(
            dict.fromkeys(each for each in job_ids if each in self.jobs.by_id)
        )
        if there:
            self._outlet.emit(Removed(there, why), now)
        return len(there)

    def flush(self, now: float) -> None:
        """Remove all jobs and queues; clients that wait for a job are told that there is
        none."""
        self._outlet.emit(Flushed(self.jobs.last_ctime), now)
        self._let_go(NIL_ARRAY)

    def leave(self, leaving: bool, now: float) -> None:
        """Take no new jobs, or take them again; clients that wait must go elsewhere."""
        if leaving != self.jobs.leaving:
            self._outlet.emit(Leaving(leaving), now)
        if leaving:
            self._let_go(LEAVING)

    def _let_go(self, answer: Value) -> None:
        """Answer all clients that wait for jobs."""
        for client in self.waiters.clients():
            self.waiters.remove(client)
            self._outlet.answer(client, answer)

    def pause(self, name: bytes, into: bool, out: bool, now: float) -> None:
        """Set what of a queue is paused."""
        queue = self.jobs.queues.get(name)
        if queue is None and not (into or out):
            return
        if queue is None or (queue.into, queue.out) != (into, out):
            self._outlet.emit(Paused(name, into, out), now)
        self.serve(name, now)

    def again(self, retry: float, now: float) -> float:
        """Return when a job comes again that comes into its queue now; 0: never."""
        return now + retry + self._jitter() if retry else 0.0

    def _jitter(self) -> float:
        return JITTER * (2 * self._jitters.random() - 1)

    # ---- clients that wait

    def serve(self, name: bytes, now: float) -> None:
        """Give a job to each client that waits at a queue, as long as there are jobs; all
        but the first clients of a crowd are answered in the next ticks."""
        queue, most = self.jobs.queues.get(name), _AT_ONCE
        self.unserved.pop(name, None)
        is_there = self._outlet.is_there
        while queue is not None and queue.jobs:
            waiter = self.waiters.first(name, is_there)
            if waiter is None:
                return
            if not most:
                self.unserved[name] = None
                return
            job = self.give(queue, waiter.client, now)
            if job is None:
                return
            most -= 1
            self.waiters.remove(waiter.client)
            self._outlet.answer(waiter.client, [job_answer(queue, job, waiter.want)])

    # ---- time

    def looks(self, now: float) -> bool:
        """Whether it is time to look for unused queues."""
        return now >= self.look_at

    def tick(self, now: float, most: int) -> None:
        """Do what is due by now, for `most` jobs at a time."""
        self._release(now)
        for name in self.unserved:
            self.serve(name, now)
            break
        if due := self.jobs.due(now, most):
            queued = [job.queue.name for job in due if self._act(job, now)]
            for name in dict.fromkeys(queued):
                self.serve(name, now)
        if self.jobs.freeing:
            self.jobs.freeing.go_on()

    @property
    def has_released(self) -> bool:
        """Whether jobs are held no longer, and the clients waiting for them not served yet."""
        return self.holding.has_released

    def _release(self, now: float) -> None:
        """Serve clients that wait for jobs that were held until now."""
        self.holding.tick(now)
        if self.holding.has_released:
            self.holding.has_released = False
            self.unserved |= dict.fromkeys(self.waiters.queues())

    def _act(self, job: Job, now: float) -> bool:
        """Do what is due about a job; return whether it came into its queue. That it
        waits on there has no line: when it is handed out its line tells when it comes
        again."""
        later = now + max(job.retry, 1.0) + self._jitter()
        if job.expires <= now:
            self._outlet.emit(Removed((job.job_id,), "expired"), now, sync=False)
        elif job.state is State.QUEUED:
            self.jobs.postpone(job, later, now)
        elif job.queue.into and job.retry:
            self._outlet.emit(Put(job.job_id, later), now, sync=False)
        else:
            return self.enqueue(job, now)
        return False

    def look(self, now: float) -> None:
        """Forget queues that are empty, not paused, and were not used for long, some at a
        time. A job of such a queue that is handed out may come back: so does the queue."""
        if not self._looked_at:
            self._look_began = now
        queues = self.jobs.queues_after(self._looked_at, _SOME)
        self._looked_at = queues[-1].number if len(queues) == _SOME else 0
        if not self._looked_at:
            self.look_at = now + max(_LOOK, _REST * (now - self._look_began))
        unused = [
            each for each in queues if not each.jobs and each.used + IDLE[-1] <= now
        ]
        idle = IDLE[self._outlet.memory_level] if unused else 0.0
        for queue in unused:
            waited_for = self.waiters.count(queue.name)
            if queue.used + idle <= now and queue.paused == "none" and not waited_for:
                self.jobs.forget_queue(queue)


def job_answer(queue: Queue, job: Job, counters: bool) -> Value:
    """Return a job as GETJOB and QPEEK give it."""
    plain: list[Value] = [queue.name, job.job_id, job.body]
    if counters:
        plain += ["nacks", job.nacks, "additional-deliveries", job.deliveries]
    return plain
