"""What a node does about the copies of its jobs: with messages, and when time passes. Pure."""

from __future__ import annotations

from random import Random

from rq.broker.cluster.collection import Collection
from rq.broker.cluster.copies import CopyDesk
from rq.broker.cluster.federation import Federation
from rq.broker.cluster.messages import (
    Delete,
    Enqueue,
    GotAck,
    IsQueued,
    Kept,
    Message,
    Need,
    Pause,
    Replicate,
    SetAck,
    WillQueue,
    Working,
    Yours,
)
from rq.broker.cluster.queueing import Queueing
from rq.broker.job import State
from rq.broker.job_desk import JobDesk
from rq.broker.outlet import Outlet

OfCopies = Replicate | Kept | Enqueue | WillQueue | IsQueued | Working | Delete


class Replication:
    """Copies, and what collects them."""

    def __init__(self, outlet: Outlet, desk: JobDesk, random: Random) -> None:
        self.copies = CopyDesk(outlet, desk, random)
        self.queueing = Queueing(outlet, desk, self.copies)
        self.federation = Federation(outlet, desk, self.copies)
        self.collection = Collection(outlet, desk, self.copies, random)
        self._desk = desk
        self._jobs = desk.jobs

    def take(self, sender: str, message: Message, now: float, wall_ms: int) -> None:
        """Take a message of another node."""
        match message:
            case SetAck():
                self.collection.set_ack(sender, message, now)
            case GotAck():
                self.collection.got_ack(sender, message, now)
            case Pause():
                self._desk.pause(message.queue, message.into, message.out, now)
            case Need():
                self.federation.give(sender, message, now)
            case Yours():
                self.federation.take(sender, message, now)
            case _:
                self._take_of_copies(sender, message, now)

    def _take_of_copies(self, sender: str, message: OfCopies, now: float) -> None:
        match message:
            case Replicate():
                self.copies.replicate(sender, message, now)
            case Kept():
                self.copies.kept(sender, message, now)
            case Enqueue():
                self.queueing.enqueue(message, now)
            case WillQueue():
                self.queueing.will_queue(sender, message, now)
            case IsQueued() | Working():
                self.queueing.is_queued(sender, message, now)
            case Delete():
                self.copies.delete(message, now)

    def tick(self, now: float, most: int) -> None:
        """Do what is due by now, for up to `most` jobs."""
        spreads = self._jobs.spreads
        for spread in spreads.due(now, most):
            if spread.is_acked:
                self.collection.collect(spread, now)
                continue
            job = self._jobs.by_id[spread.job_id]
            if job.state is State.WAIT_REPL:
                self.copies.go_on(job, spread, now)
            else:
                self.queueing.announce(job, spread)
        spreads.forget(now, most)
        self.federation.tick(now, most)
        self.copies.tick(now)
