"""What a node does about the copies of its jobs: with messages, and when time passes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from rq.broker.cluster.messages import (
    Delete,
    Enqueue,
    GotAck,
    IsQueued,
    Kept,
    Mark,
    Message,
    Need,
    Pause,
    Replicate,
    SetAck,
    WillQueue,
    Working,
    Yours,
)
from rq.broker.desks.collection import Collection
from rq.broker.desks.copies import CopyDesk
from rq.broker.desks.federation import Federation
from rq.broker.desks.job_desk import JobDesk
from rq.broker.desks.outlet import Outlet
from rq.broker.desks.placement import Placement
from rq.broker.desks.returning import Telling
from rq.broker.state.job import State

_Take = Callable[..., None]  # a sender, its message, the time


class Replication:
    """Copies, and what collects them."""

    def __init__(self, outlet: Outlet, desk: JobDesk, random: Random) -> None:
        self.copies = CopyDesk(outlet, desk, random)
        self.placement = Placement(outlet, desk, self.copies)
        self.federation = Federation(outlet, desk, self.copies)
        self.collection = Collection(outlet, desk, self.copies, random)
        self.telling = Telling(outlet, desk.jobs)
        self._desk = desk
        self._jobs = desk.jobs
        self._takes: Mapping[type[Message], _Take] = {
            Replicate: self.copies.replicate,
            Kept: self.copies.kept,
            Delete: self.copies.delete,
            Enqueue: self.placement.enqueue,
            WillQueue: self.placement.will_queue,
            IsQueued: self.placement.is_queued,
            Working: self.placement.is_queued,
            SetAck: self.collection.set_ack,
            GotAck: self.collection.got_ack,
            Need: self.federation.give,
            Yours: self.federation.take,
            Pause: self._pause,
            Mark: desk.holding.marked,
        }

    def take(self, sender: str, message: Message, now: float) -> None:
        """Take a message of another node."""
        self._desk.holding.tells(sender, now)
        self._takes[type(message)](sender, message, now)

    def linked(self, node: str, now: float) -> None:
        """Our link to a node stands: it hears what it may have missed, and no pause that
        has grown meanwhile is waited for."""
        self.telling.begin(node)
        self.copies.returned(node, now)
        self.federation.returned(now)

    def _pause(self, _sender: str, message: Pause, now: float) -> None:
        self._desk.pause(message.queue, message.into, message.out, now)

    def tick(self, now: float, most: int) -> None:
        """Do what is due by now, for up to `most` jobs."""
        spreads = self._jobs.spreads
        self.telling.tick()
        for spread in spreads.due(now, most):
            if spread.is_acked:
                self.collection.collect(spread, now)
                continue
            job = self._jobs.by_id[spread.job_id]
            if job.state is State.WAIT_REPL:
                self.copies.go_on(job, spread, now)
            else:
                self.placement.announce(job, spread)
        spreads.forget(now, most)
        self.federation.tick(now, most)
        self.copies.tick(now)
