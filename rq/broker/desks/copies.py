"""Copies of jobs on other nodes, which are there before the producer is answered. Pure.

ADDJOB with REPLICATE n promises: once its producer has the id, n nodes have the job on
disk.

    producer    ADDJOB ──►  node A: the job waits (WAIT_REPL), in no queue
    A           Replicate ──►  n-1 nodes, drawn, first of those to which a link stands
    each        writes the copy, syncs, then Kept ──►  A
    A           n nodes have it, counting A: the id to the producer, the job into its queue

Copies leave early, before the job is durable at A, so that all disks sync at the same
time. Kept leaves when the copy is durable, and the reply of A, as every reply, when
A's own sync is done.

What is true at all times:

- `Spread.may_have` names every node that was sent a copy, as far as this node knows.
  These are told when the job is withdrawn, or is done and can go.
- While the producer waits `confirmed` holds the nodes that said Kept, and A if it keeps
  the job. The job is in no queue of A, so no client can be handed what may be
  withdrawn.
- A producer is answered once: with the id, or with why not. An error means that the job
  was withdrawn; a copy whose node did not get that message may still come.

What may happen:

- A node does not answer within LOOK: the copies go to one node more, and again to the
  others; a copy that comes twice is kept once and confirmed twice. If there is no other
  node, those that have not answered are asked again, in pauses that double: they are
  busy.
- Too few nodes are left, or the producer's time is over, or it hangs up: the job is
  withdrawn here and wherever a copy may be (Delete).
- A itself cannot keep a job (memory is short, it leaves the cluster): it only passes
  the job on, lets one of those that have it queue it, and forgets it (MOVED).
- A dies while the producer waits. If nothing was durable at A, a copy elsewhere comes
  into the queue there: the job is done although its producer had no answer. Else the
  start cannot know whether the producer had its answer: the job begins (`begin`) after a
  moment in which other nodes can tell what became of it.
"""

from __future__ import annotations

from random import Random

from rq.broker.cluster.messages import (
    Copy,
    Delete,
    Enqueue,
    Kept,
    Message,
    Replicate,
    SetAck,
)
from rq.broker.desks.job_desk import JobDesk
from rq.broker.desks.outlet import Outlet
from rq.broker.desks.returning import HOLD
from rq.broker.state.job import MOVED, Added, Copied, Job, Put, Queued, Removed, State
from rq.broker.state.spread import Spread, copied_of
from rq.broker.state.waiters import Waiter, Waiters
from rq.resp import Failure, Status

LOOK = 0.1  # seconds until copies are sent again, to one more node
WITHDRAWN = "withdrawn"  # why a job is removed everywhere
_MOST_TRIES = 4  # times that it takes twice as long until copies are sent again
GONE = Failure(
    "NOREPL job removed (expired?) before the requested replication level was achieved"
)
TOO_FEW = Failure(
    "NOREPL Not enough reachable nodes for the requested replication level"
)
TOO_LATE = Failure(
    "NOREPL Timeout reached before replicating to the requested number of nodes"
)


class CopyDesk:
    """Sends copies, and takes them."""

    def __init__(self, outlet: Outlet, desk: JobDesk, random: Random) -> None:
        self.waiters: Waiters[str] = Waiters(TOO_LATE)  # for copies of a job
        self._outlet = outlet
        self._desk = desk
        self._jobs = desk.jobs
        self._random = random

    # ---- a job that is to have copies

    def add(
        self, added: Added, wanted: int, client: int, until: float | None, now: float
    ) -> None:
        """Take a job, and answer its producer once `wanted` nodes have it durably."""
        keeps = self._outlet.cannot_keep() is None
        waiting = added._replace(due=0.0, queued=False)
        self._outlet.emit(waiting, now)
        own = (self._outlet.node_id,) if keeps else ()
        targets = self._draw(wanted - len(own), frozenset())
        copied = Copied(added.job, wanted, (*own, *targets), False, True, 0)
        self._outlet.emit(copied, now)
        spread = self._jobs.spreads.by_job[added.job]
        spread.confirmed = frozenset(own)
        spread.client = client
        self._jobs.spreads.waiting[client] = added.job
        self.waiters.add(Waiter(client, (), added.job, until))
        self._send_copies(spread, now)
        self._jobs.spreads.wake(spread, now + LOOK, now)

    def add_async(self, added: Added, wanted: int, now: float) -> None:
        """Take a job whose producer does not wait for copies of it."""
        if self._outlet.cannot_keep() is None:
            self._outlet.emit(added, now)
            targets = self._draw(wanted - 1, frozenset())
            nodes = (self._outlet.node_id, *targets)
            self._outlet.emit(Copied(added.job, wanted, nodes, True, False, 0), now)
            spread = self._jobs.spreads.by_job[added.job]
            if added.delay:
                spread.announces = False
            self._send_copies(spread, now, quiet=True)
            return
        targets = self._draw(wanted, frozenset())
        copy = _copy_of_new(added, wanted, targets)
        for node in targets:
            self._outlet.send(node, Replicate(copy, True))
        self._outlet.send(self._random.choice(targets), Enqueue(added.job, added.delay))

    def _draw(self, number: int, without: frozenset[str]) -> tuple[str, ...]:
        """Draw nodes for copies, as many as there are up to `number`; first those to
        which a link stands."""
        peers, drawn = self._outlet.peers, list[str]()
        for nodes in (peers.reachable, peers.counted):
            there = [node for node in nodes if node not in without.union(drawn)]
            some = min(len(there), number - len(drawn))
            drawn += self._random.sample(there, some) if some < len(there) else there
        return tuple(drawn)

    def _send_copies(self, spread: Spread, now: float, *, quiet: bool = False) -> None:
        job = self._jobs.by_id[spread.job_id]
        copy = copy_of(job, spread.may_have, spread.wanted, spread.moves, now)
        loud, silent = Replicate(copy, False), Replicate(copy, True)
        for node in self.others(spread):
            message = silent if quiet or node in spread.confirmed else loud
            self._outlet.send(node, message, early=True)

    def go_on(self, job: Job, spread: Spread, now: float) -> None:
        """Send copies of a job whose producer still waits to one node more; if there is
        none, to those that have not answered, less often each time: they are busy. Let it
        go if the producer went with the end of an earlier process."""
        if spread.client is None:
            self.fail(job, None, now)
            return
        if self._is_hopeless(spread):
            self.fail(job, TOO_FEW, now)
            return
        more = self._draw(1, spread.may_have)
        if not more:
            spread.attempts = min(_MOST_TRIES, spread.attempts + 1)
        self._jobs.spreads.wake(spread, now + LOOK * 2**spread.attempts, now)
        if more:
            self.grow(spread, more, now)
            self._send_copies(spread, now)
            return
        copy = copy_of(job, spread.may_have, spread.wanted, spread.moves, now)
        message = Replicate(copy, False)
        for node in self.others(spread):
            if node not in spread.confirmed:
                self._outlet.send(node, message, early=True)

    def _is_hopeless(self, spread: Spread) -> bool:
        """Whether a producer would wait for ever: too few nodes are left that are not
        suspected. One with a time-out waits until that is over."""
        if spread.client is None or self.waiters.until(spread.client) is not None:
            return False
        left = spread.confirmed.union(self._outlet.peers.counted)
        return len(left) < spread.wanted

    def returned(self, node: str, now: float) -> None:
        """The link to a node stands again: send what it has not answered at once, and
        often again."""
        for job_id in list(self._jobs.spreads.waiting.values()):
            spread = self._jobs.spreads.by_job.get(job_id)
            if spread is not None and node not in spread.confirmed:
                spread.attempts = 0
                self._jobs.spreads.wake(spread, now, now)

    def grow(self, spread: Spread, nodes: tuple[str, ...], now: float) -> None:
        """Note that more nodes may have a copy."""
        both = spread.may_have.union(nodes)
        if both != spread.may_have:
            self._note(spread, both, now)

    def _note(self, spread: Spread, nodes: frozenset[str], now: float) -> None:
        """Note which nodes may have a copy."""
        waits = self.state(spread) is State.WAIT_REPL
        event = copied_of(spread)._replace(may_have=tuple(sorted(nodes)), waits=waits)
        self._outlet.emit(event, now)
        if waits:
            self._jobs.spreads.wake(spread, now + LOOK, now)

    def entry(self, job_id: str, nodes: tuple[str, ...], now: float) -> Spread:
        """Note that more nodes may have a copy of a job, which so far may be here only;
        return where its copies are."""
        spread = self._jobs.spreads.by_job.get(job_id)
        if spread is not None:
            self.grow(spread, nodes, now)
            return spread
        nodes = tuple(sorted({self._outlet.node_id, *nodes}))
        self._outlet.emit(Copied(job_id, 1, nodes, True, False, 0), now)
        return self._jobs.spreads.by_job[job_id]

    def rename(self, before: str, now: float) -> None:
        """This node has another id than before: so have its copies."""
        own = {self._outlet.node_id}
        for spread in list(self._jobs.spreads.by_job.values()):
            if before in spread.confirmed:
                spread.confirmed = spread.confirmed - {before} | own
            if before in spread.may_have:
                self._note(spread, spread.may_have - {before} | own, now)

    def state(self, spread: Spread) -> State | None:
        """Return the state of a job; None: there is only an acknowledgement."""
        job = self._jobs.by_id.get(spread.job_id)
        return None if job is None else job.state

    def others(self, spread: Spread) -> list[str]:
        """Return the other nodes that may have a copy."""
        return sorted(spread.may_have - {self._outlet.node_id})

    def tell_others(self, spread: Spread, message: Message) -> None:
        """Write to all other nodes that may have a copy."""
        for node in self.others(spread):
            self._outlet.send(node, message)

    # ---- enough copies, or too late

    def succeed(self, job: Job, spread: Spread, now: float) -> None:
        """Enough copies are kept: answer the producer, and begin with the job. That it
        does need not be durable: see `begin`."""
        self._answer(spread, Status(job.job_id))
        spread.confirmed, confirmed = frozenset(), spread.confirmed
        spread.attempts = 0
        due = job.created + job.delay
        if self._outlet.node_id not in spread.may_have:
            left = max(0.0, due - now) if job.delay else 0.0
            nodes = sorted(confirmed) or self.others(spread)
            self._outlet.send(self._random.choice(nodes), Enqueue(job.job_id, left))
            self._outlet.emit(Removed((job.job_id,), MOVED), now)
        elif due > now:
            self._outlet.emit(Put(job.job_id, due), now, sync=False)
        else:
            queued = Queued(job.job_id, self._desk.again(job.retry, now), 0, 0)
            self._outlet.emit(queued, now, sync=False)
            self._desk.serve(job.queue.name, now)

    def fail(self, job: Job, why: Failure | None, now: float) -> None:
        """Withdraw a job whose producer waits, here and elsewhere; `why` is the answer,
        None when the producer is gone."""
        spread = self._jobs.spreads.by_job[job.job_id]
        if why is not None:
            self._answer(spread, why)
        self.tell_others(spread, Delete(job.job_id))
        self._outlet.emit(Removed((job.job_id,), WITHDRAWN), now)

    def _answer(self, spread: Spread, value: Status | Failure) -> None:
        client, spread.client = spread.client, None
        if client is not None:
            self._forget(client)
            self._outlet.answer(client, value)

    def _forget(self, client: int) -> str | None:
        """Forget a producer that waits; return for copies of which job."""
        self.waiters.remove(client)
        return self._jobs.spreads.waiting.pop(client, None)

    def hung_up(self, client: int, now: float) -> None:
        """A producer that waited is gone."""
        self._let_go(client, None, now)

    def _let_go(self, client: int, why: Failure | None, now: float) -> None:
        job_id = self._forget(client)
        job = None if job_id is None else self._jobs.by_id.get(job_id)
        if job is not None and job.state is State.WAIT_REPL:
            self._jobs.spreads.by_job[job.job_id].client = None
            self.fail(job, None, now)
        if why is not None:
            self._outlet.answer(client, why)

    # ---- messages

    def replicate(self, sender: str, message: Replicate, now: float) -> None:
        """Keep a copy, and say so when it is durable."""
        copy, jobs = message.copy, self._jobs
        job_id = copy.job
        tomb = jobs.spreads.tombs.get(job_id)
        spread = jobs.spreads.by_job.get(job_id)
        job = jobs.by_id.get(job_id)
        if job is None and spread is not None:
            self._outlet.send(sender, SetAck(job_id, ()))
        elif job is None and tomb is not None:
            if tomb.is_over:
                self._outlet.send(sender, SetAck(job_id, ()))
        elif job is None and not self._takes(copy.queue):
            return
        else:
            if job is None:
                self.store(copy, now)
            elif spread is not None:
                self.grow(spread, copy.may_have, now)
            if not message.quiet:
                self._outlet.send(sender, Kept(job_id))

    def _takes(self, queue: bytes) -> bool:
        """Whether copies for a queue are kept now."""
        target = self._jobs.queues.get(queue)
        paused = target is not None and target.into
        return not paused and self._outlet.cannot_keep() is None

    def store(self, copy: Copy, now: float) -> None:
        """Keep a copy that is new here."""
        due = self._desk.again(copy.retry, now + copy.delay) if copy.retry else 0.0
        added = Added(
            copy.job,
            copy.queue,
            copy.body,
            copy.ctime,
            now,
            copy.ttl,
            copy.retry,
            copy.delay,
            due,
            False,
        )
        self._outlet.emit(added, now)
        nodes = tuple(sorted({*copy.may_have, self._outlet.node_id}))
        copied = Copied(copy.job, copy.wanted, nodes, True, False, copy.moves)
        self._outlet.emit(copied, now)

    def kept(self, sender: str, message: Kept, now: float) -> None:
        """One more node has a copy. If that are enough and the producer has hung up, which
        may not have been read yet, the job is withdrawn, as whenever that is read first:
        else a moment would decide whether a job is there that was not answered."""
        job = self._jobs.by_id.get(message.job)
        if job is None or job.state is not State.WAIT_REPL:
            return
        spread = self._jobs.spreads.by_job[message.job]
        spread.confirmed |= {sender}
        if len(spread.confirmed) < spread.wanted:
            return
        if spread.client is None or self._outlet.is_there(spread.client):
            self.succeed(job, spread, now)
        else:
            self.hung_up(spread.client, now)

    def delete(self, _sender: str, message: Delete, now: float) -> None:
        """Forget a job, in whatever state it is."""
        job = self._jobs.by_id.get(message.job)
        if job is not None or message.job in self._jobs.spreads.by_job:
            self._outlet.emit(Removed((message.job,), WITHDRAWN), now)

    # ---- time

    def tick(self, now: float) -> None:
        """Answer producers that have waited long enough, or whose jobs are gone."""
        for client in self.waiters.ended(now):
            self._let_go(client, TOO_LATE, now)
        if not self._jobs.spreads.left:
            return
        left, self._jobs.spreads.left = self._jobs.spreads.left, []
        for client in left:
            self._let_go(client, GONE, now)

    def begin(self, now: float) -> None:
        """After a start: wait until the others said what became of jobs with copies before these
        come again. A job that waited for copies may have had them, and its producer the
        answer: after a power cut that cannot be known. One that only others were to keep is
        let go, unless the disk turns out to be an old copy."""
        for spread in list(self._jobs.spreads.by_job.values()):
            job = self._jobs.by_id.get(spread.job_id)
            if job is None:
                continue
            least = now + min(job.retry or HOLD, HOLD)
            if job.state is State.WAIT_REPL:
                self._begin_anyway(job, spread, least, now)
            elif job.state is State.ACTIVE and 0 < job.due < least:
                self._jobs.postpone(job, least, now)

    def _begin_anyway(self, job: Job, spread: Spread, least: float, now: float) -> None:
        if self._outlet.node_id in spread.may_have:
            due = max(job.created + job.delay, least)
            self._outlet.emit(Put(job.job_id, due), now)
        else:
            self._jobs.spreads.wake(spread, now + HOLD, now)


def _copy_of_new(added: Added, wanted: int, nodes: tuple[str, ...]) -> Copy:
    return Copy(
        added.job,
        added.queue,
        added.body,
        added.ctime,
        added.ttl + 1.0,
        added.delay,
        added.retry,
        wanted,
        0,
        0,
        nodes,
    )


def copy_of(
    job: Job, nodes: frozenset[str], wanted: int, moves: int, now: float
) -> Copy:
    """Return a job as it travels."""
    return Copy(
        job.job_id,
        job.queue.name,
        job.body,
        job.ctime,
        job.expires - now + 1.0,
        max(0.0, job.created + job.delay - now) if job.delay else 0.0,
        job.retry,
        wanted,
        job.nacks,
        job.deliveries,
        tuple(sorted(nodes)),
        moves,
    )
