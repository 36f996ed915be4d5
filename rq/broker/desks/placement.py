"""Which of the nodes with a copy of a job has it in its queue: one at a time, as long as
they hear of each other. Pure.
"""

from __future__ import annotations

from rq.broker.cluster.messages import Enqueue, IsQueued, SetAck, WillQueue, Working
from rq.broker.desks.copies import CopyDesk
from rq.broker.desks.job_desk import JobDesk
from rq.broker.desks.outlet import Outlet
from rq.broker.state.job import Job, Put, Queued, State
from rq.broker.state.spread import Spread


class Placement:
    """Says when jobs come into their queues here, and hears when they do elsewhere."""

    def __init__(self, outlet: Outlet, desk: JobDesk, copies: CopyDesk) -> None:
        self._outlet = outlet
        self._desk = desk
        self._jobs = desk.jobs
        self._copies = copies

    def enqueue(self, _sender: str, message: Enqueue, now: float) -> None:
        """Put a copy into its queue: the node that took the job keeps none."""
        job = self._jobs.by_id.get(message.job)
        spread = self._jobs.spreads.by_job.get(message.job)
        if job is None or spread is None or job.state is not State.ACTIVE:
            return
        if job.queue.into or (not job.retry and job.was_queued):
            return
        spread.announces = False
        if message.delay:
            self._outlet.emit(Put(job.job_id, now + message.delay), now)
            return
        due = self._desk.again(job.retry, now)
        queued = Queued(job.job_id, due, job.nacks, job.deliveries)
        self._outlet.emit(queued, now)
        self._desk.serve(job.queue.name, now)

    def will_queue(self, sender: str, message: WillQueue, now: float) -> None:
        """Another node is about to queue a job: say what is known of it."""
        job = self._jobs.by_id.get(message.job)
        if self._is_over(sender, message.job) or job is None:
            return
        spread = self._copies.entry(message.job, (sender,), now)
        if job.state is State.QUEUED:
            self._copies.tell_others(spread, IsQueued(message.job, 0, 0))

    def is_queued(self, sender: str, message: IsQueued | Working, now: float) -> None:
        """A job came into its queue on another node, or is worked on: not here."""
        job = self._jobs.by_id.get(message.job)
        if self._is_over(sender, message.job) or job is None:
            return
        if job.state is State.WAIT_REPL:
            return
        self._copies.entry(message.job, (sender,), now)
        works = isinstance(message, Working)
        due = self._desk.again(job.retry, now) if job.retry else job.due
        if job.state is State.QUEUED:
            if not works and not _wins(sender, self._outlet.node_id, job.job_id):
                # That a job moved here was not said to other nodes.
                self._outlet.send(sender, IsQueued(job.job_id, 0, 0))
                return
            self._outlet.emit(Put(job.job_id, due), now, sync=False)
        elif job.retry:
            self._jobs.postpone(job, due, now)
        if isinstance(message, IsQueued):
            self._jobs.count(job, message.nacks, message.deliveries)

    def _is_over(self, sender: str, job_id: str) -> bool:
        """Tell the sender of a job that is acknowledged; return whether it is."""
        spread = self._jobs.spreads.by_job.get(job_id)
        tomb = self._jobs.spreads.tombs.get(job_id)
        if spread is not None:
            if spread.is_acked:
                nodes = tuple(sorted(spread.may_have))
                self._outlet.send(sender, SetAck(job_id, nodes))
            return spread.is_acked
        is_over = tomb is not None and tomb.is_over
        if is_over and job_id not in self._jobs.by_id:
            self._outlet.send(sender, SetAck(job_id, ()))
        return is_over

    def announce(self, job: Job, spread: Spread) -> None:
        """A job comes again in half a second, unless another node has it queued."""
        if job.state is State.ACTIVE and spread.announces:
            self._copies.tell_others(spread, WillQueue(spread.job_id))


def _wins(sender: str, own: str, job_id: str) -> bool:
    """Whether another node keeps a job in its queue that both have in it: each node of
    a cluster says the same, and of each job another.

    >>> _wins("ff" * 20, "00" * 20, "D-abababab-AAAAAAAAAAAAAAAAAAAAAAAA-05a1")
    True
    """
    drawn = (job_id[11:35] * 2)[: len(own)].encode()
    return _mixed(sender, drawn) > _mixed(own, drawn)


def _mixed(node: str, drawn: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(node.encode(), drawn, strict=True))
