"""Jobs go to the nodes where consumers wait for them. Pure.

A node whose consumers find a queue empty asks all others for a job, seldom; those that
gave some it asks for more, often.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import ceil, inf

from rq.broker.cluster.messages import Copy, IsQueued, Need, SetAck, Yours
from rq.broker.desks.copies import CopyDesk, copy_of
from rq.broker.desks.job_desk import JobDesk
from rq.broker.desks.outlet import Outlet
from rq.broker.state.body import size_of
from rq.broker.state.bounds import Room
from rq.broker.state.deadlines import Deadlines, Timed
from rq.broker.state.job import MOVED, Buried, Given, Job, Queued, Removed, State

_SEEK = 2.0, 30.0  # seconds until all are asked again: doubled each time, up to
_FETCH = 0.025, 2.0  # seconds until those that gave some are asked again
_STAYS = 5.0  # seconds that who gave jobs, and how many, is remembered
_LEAST, _MOST = 5, 100  # jobs that are asked for at a time
_PART = 1024 * 1024  # bytes of bodies in one message, but for a single one
_BUCKET = 1.0  # seconds
_MOST_QUEUES = 100_000  # for which others are asked: consumers may name any


class Importing:
    """What came for one queue from other nodes, and when they were asked."""

    __slots__ = (
        "at",
        "before",
        "count",
        "fetched",
        "fetches",
        "from_",
        "name",
        "seeks",
        "slot",
        "sought",
        "sources",
    )

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.sources: dict[str, float] = {}  # until when a node counts as one
        self.seeks = self.fetches = 0  # that brought nothing
        self.sought = self.fetched = -inf
        self.from_ = -inf  # when the bucket of now began
        self.count = 0  # jobs that came since then
        self.before = (-inf, 0)  # the bucket before
        self.at = 0.0
        self.slot: dict[Timed, None] | None = None

    def rate(self, now: float) -> int:
        """Return how many jobs come a second."""
        if now - self.from_ > _STAYS:
            return 0
        since = max(self.before[0], self.from_ - _STAYS)
        return ceil((self.before[1] + self.count) / max(0.05, now - since))

    def came(self, sender: str, number: int, now: float) -> None:
        """Jobs came from another node."""
        if sender not in self.sources:
            self.seeks = 0
        self.sources[sender] = now + _STAYS
        self.fetches = 0
        if now - self.from_ >= _BUCKET:
            self.before = (self.from_, self.count)
            if now - self.from_ > _STAYS:
                self.before = (now, 0)
            self.from_, self.count = now, 0
        self.count += number

    def those_that_give(self, now: float) -> list[str]:
        """Return the nodes that gave jobs of late."""
        self.sources = {
            node: until for node, until in self.sources.items() if until > now
        }
        return list(self.sources)


class Federation:
    """Asks for jobs, and gives them away."""

    def __init__(self, outlet: Outlet, desk: JobDesk, copies: CopyDesk) -> None:
        self.queues: dict[bytes, Importing] = {}
        self._outlet = outlet
        self._desk = desk
        self._jobs = desk.jobs
        self._copies = copies
        self.deadlines: Deadlines[Importing] = Deadlines()

    # ---- asking

    def need(self, name: bytes, now: float, *, emptied: bool = False) -> None:
        """Ask for jobs of a queue that has none; `emptied`: its last one just went."""
        if self._jobs.leaving or self._outlet.peers.size < 2:
            return
        queue = self.queues.get(name)
        if queue is None:
            if emptied or len(self.queues) >= _MOST_QUEUES:
                return
            queue = self.queues[name] = Importing(name)
        rate = queue.rate(now)
        if emptied and not rate:
            return
        self._seek(queue, now)
        self._fetch(queue, rate, now, at_once=emptied)
        self.deadlines.move(queue, self._next(queue, now), now)

    def returned(self, now: float) -> None:
        """The link to a node stands again: who waits asks it at once, whose pauses may
        have grown long."""
        for queue in self.queues.values():
            queue.seeks, queue.sought = 0, -inf
            self.deadlines.move(queue, now, now)

    def _seek(self, queue: Importing, now: float) -> None:
        if now - queue.sought <= _wait(_SEEK, queue.seeks):
            return
        queue.sought, queue.seeks = now, queue.seeks + 1
        for node in self._outlet.peers.others:
            self._outlet.send(node, Need(queue.name, 1))

    def _fetch(self, queue: Importing, rate: int, now: float, *, at_once: bool) -> None:
        sources = queue.those_that_give(now)
        if not sources:
            return
        if not at_once and now - queue.fetched <= _wait(_FETCH, queue.fetches):
            return
        queue.fetched, queue.fetches = now, queue.fetches + 1
        number = max(_LEAST, min(_MOST, rate // len(sources)))
        for node in sources:
            self._outlet.send(node, Need(queue.name, number))

    def _next(self, queue: Importing, now: float) -> float:
        """Return when to ask again, for those that wait."""
        at = queue.sought + _wait(_SEEK, queue.seeks)
        if queue.sources:
            at = min(at, queue.fetched + _wait(_FETCH, queue.fetches))
        return max(at, now) + 0.01

    def tick(self, now: float, most: int) -> None:
        """Ask again where consumers still wait; forget where none do."""
        for queue in self.deadlines.due(now, most):
            there = self._jobs.queues.get(queue.name)
            if self._desk.waiters.count(queue.name) and not (there and there.jobs):
                self.need(queue.name, now)
            elif now - max(queue.sought, queue.from_) > _SEEK[1]:
                del self.queues[queue.name]
            else:
                self.deadlines.move(queue, now + _SEEK[1], now)

    # ---- giving

    def give(self, sender: str, message: Need, now: float) -> None:
        """Give jobs of a queue to a node that needs some."""
        queue = self._jobs.queues.get(message.queue)
        importing = self.queues.get(message.queue)
        if queue is None or not queue.jobs or queue.out:
            return
        if importing is not None and importing.rate(now):
            return  # two nodes with consumers would send one job back and forth
        number = max(1, min(message.number, _MOST))
        if len(queue) < 2 * number:
            number = max(1, len(queue) // 2)
        free = list(islice(self._desk.holding.free(queue.jobs, now), number))
        if not free:
            return
        copies = [
            self._handed_over(job, sender, now)
            for job in Room().take(free, number, _body_bytes)
        ]
        for part in _parts(copies):
            self._outlet.send(sender, Yours(tuple(part)))

    def _handed_over(self, job: Job, to: str, now: float) -> Copy:
        """Give a job to another node. One that comes at most once is not here any more,
        durably, before it is there."""
        due = self._desk.again(job.retry, now)
        self._outlet.emit(Given(job.job_id, due), now, sync=False)
        spread = self._jobs.spreads.by_job.get(job.job_id)
        moves = 1 if spread is None else spread.moves + 1
        if job.retry:
            spread = self._copies.entry(job.job_id, (to,), now)
            return copy_of(job, spread.may_have, spread.wanted, spread.moves, now)
        nodes = frozenset() if spread is None else spread.may_have
        copy = copy_of(job, nodes - {self._outlet.node_id} | {to}, 1, moves, now)
        self._outlet.emit(Buried(job.job_id, job.expires, False, moves), now)
        self._outlet.emit(Removed((job.job_id,), MOVED), now)
        return copy

    # ---- taking

    def take(self, sender: str, message: Yours, now: float) -> None:
        """Take jobs that another node gave."""
        names: dict[bytes, int] = {}
        for copy in message.copies:
            self._take(sender, copy, now)
            names[copy.queue] = names.get(copy.queue, 0) + 1
        for name, number in names.items():
            queue = self.queues.get(name)
            if queue is None:
                queue = self.queues[name] = Importing(name)
                self.deadlines.add(queue, now)
            queue.came(sender, number, now)
            self._desk.serve(name, now)

    def _take(self, sender: str, copy: Copy, now: float) -> None:
        job_id = copy.job
        tomb = self._jobs.spreads.tombs.get(job_id)
        job = self._jobs.by_id.get(job_id)
        spread = self._jobs.spreads.by_job.get(job_id)
        if spread is not None and spread.is_acked:
            nodes = tuple(sorted(spread.may_have))
            self._outlet.send(sender, SetAck(job_id, nodes))
        elif job is not None:
            self._queue_own(job, copy, now)
        elif tomb is None or (not copy.retry and copy.moves > tomb.moves):
            self._copies.store(copy, now)
            self._queue(self._jobs.by_id[job_id], copy, now)
        elif tomb.is_over:
            self._outlet.send(sender, SetAck(job_id, ()))

    def _queue_own(self, job: Job, copy: Copy, now: float) -> None:
        """A job that is here already is given by another node: queue the copy."""
        if job.state is State.ACTIVE and job.retry:
            nodes = (self._outlet.node_id, *copy.may_have)
            self._copies.entry(job.job_id, nodes, now)
            self._queue(job, copy, now)

    def _queue(self, job: Job, copy: Copy, now: float) -> None:
        """Put a job into its queue; that it has moved is no delivery. Nodes with a
        copy that do not know of this one hear where it is."""
        nacks = max(job.nacks, copy.nacks)
        deliveries = max(job.deliveries, copy.deliveries)
        due = self._desk.again(job.retry, now)
        self._outlet.emit(Queued(job.job_id, due, nacks, deliveries), now)
        spread = self._jobs.spreads.by_job[job.job_id]
        self._copies.tell_others(spread, IsQueued(job.job_id, 0, 0))

    def figures(self, name: bytes, now: float) -> tuple[list[str], int]:
        """Return which nodes give jobs of a queue, and how many come a second."""
        importing = self.queues.get(name)
        if importing is None:
            return [], 0
        return importing.those_that_give(now), importing.rate(now)


def _parts(copies: list[Copy]) -> Iterator[list[Copy]]:
    """Give the copies of one message each: one with a large body goes alone, for a
    message has bounds, and its receiver is held up by it."""
    part: list[Copy] = []
    size = 0
    for copy in copies:
        size += size_of(copy.body)
        if part and size > _PART:
            yield part
            part, size = [], size_of(copy.body)
        part.append(copy)
    yield part


def _wait(bounds: tuple[float, float], times: int) -> float:
    """Return the seconds until the next try."""
    least, most = bounds
    return min(least * 2.0 ** min(times, 10), most)


def _body_bytes(job: Job) -> int:
    return size_of(job.body)
