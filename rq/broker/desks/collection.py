"""Acknowledged jobs go when each node that may have a copy knows it. Pure.

Sets of nodes are compared, not their sizes; a node that the cluster has forgotten counts
as one that knows. Those that are away are asked again, in pauses that double up to three
minutes, for as long as the job's TTL.
"""

from __future__ import annotations

from random import Random

from rq.broker.cluster.messages import Delete, GotAck, SetAck
from rq.broker.desks.copies import CopyDesk
from rq.broker.desks.job_desk import JITTER, JobDesk
from rq.broker.desks.outlet import Outlet
from rq.broker.state import ids
from rq.broker.state.job import Acked, Buried, Job, Removed, State
from rq.broker.state.spread import BURIED, Spread

_MOST_ATTEMPTS = 10
_LONGEST = 180.0  # seconds between two attempts
COLLECTED = "collected"


class Collection:
    """Takes acknowledgements, passes them on, and drops what all have acknowledged."""

    def __init__(
        self, outlet: Outlet, desk: JobDesk, copies: CopyDesk, random: Random
    ) -> None:
        self._outlet = outlet
        self._desk = desk
        self._jobs = desk.jobs
        self._copies = copies
        self._jitters = Random(random.getrandbits(64))

    # ---- commands

    def ack(self, job_ids: list[str], now: float) -> int:
        """Jobs are done; return how many were here and not yet acknowledged."""
        spreads = self._jobs.spreads.by_job
        alone = [job_id for job_id in job_ids if job_id not in spreads]
        if self._outlet.peers.size > 1:
            unknown = [job_id for job_id in alone if job_id not in self._jobs.by_id]
            self._ack_unknown(unknown, now)
        count = self._desk.remove(alone, "acknowledged", now)
        if not spreads:
            return count
        for job_id in dict.fromkeys(job_ids):
            if (spread := spreads.get(job_id)) is not None:
                count += self._ack(spread, now)
                self.collect(spread, now)
        return count

    def _ack(self, spread: Spread, now: float) -> bool:
        """Acknowledge a job here; False: it is already."""
        if spread.is_acked:
            return False
        job = self._jobs.by_id[spread.job_id]
        if job.state is State.WAIT_REPL:
            self._copies.succeed(job, spread, now)
        if self._jobs.by_id.get(spread.job_id) is job:
            self._outlet.emit(Acked(spread.job_id, 0.0), now)
        return True

    def _ack_unknown(self, job_ids: list[str], now: float) -> None:
        """Keep acknowledgements of jobs that other nodes may have; none when memory is
        full, for while a node is away they stay as long as their ids say, 45 days."""
        if self._jobs.leaving or self._outlet.memory_level == 2:
            return
        for job_id in job_ids:
            tomb = self._jobs.spreads.tombs.get(job_id)
            is_over = tomb is not None and tomb.is_over
            life = ids.life(job_id)
            if life and not is_over and job_id not in self._jobs.spreads.by_job:
                self._outlet.emit(Acked(job_id, now + life), now)

    def delete_everywhere(self, job_ids: list[str], now: float) -> int:
        """Forget jobs here and, as far as messages arrive, elsewhere (FASTACK)."""
        peers = self._outlet.peers
        for job_id in dict.fromkeys(job_ids):
            spread = self._jobs.spreads.by_job.get(job_id)
            if spread is not None and not spread.is_bare:
                self._copies.tell_others(spread, Delete(job_id))
            elif job_id not in self._jobs.by_id:
                for node in peers.others:
                    self._outlet.send(node, Delete(job_id))
        return self._desk.remove(job_ids, "acknowledged", now)

    # ---- collecting

    def collect(self, spread: Spread, now: float) -> None:
        """Drop a job if all know that it is acknowledged; else tell those who may not."""
        if self._jobs.spreads.by_job.get(spread.job_id) is not spread:
            return
        missing = self._missing(spread)
        if not missing or (spread.is_bare and spread.expires <= now):
            self._drop(spread, now)
            return
        spread.attempts = min(_MOST_ATTEMPTS, spread.attempts + 1)
        for node in missing:
            nodes = tuple(sorted(spread.may_have))
            self._outlet.send(node, SetAck(spread.job_id, nodes))
        wait = min(_LONGEST, 2.0**spread.attempts)
        wait += self._jitters.uniform(-JITTER, JITTER)
        self._jobs.spreads.wake(spread, now + wait, now)

    def _missing(self, spread: Spread) -> list[str]:
        """Return the nodes that are still to say that they know."""
        members = set(self._outlet.peers.others)
        if not spread.is_bare:
            members &= spread.may_have
        return sorted(members - spread.confirmed)

    def _drop(self, spread: Spread, now: float) -> None:
        """Forget a job that all have acknowledged, and tell all to forget it."""
        for node in sorted(spread.may_have.intersection(self._outlet.peers.others)):
            self._outlet.send(node, Delete(spread.job_id))
        self._outlet.emit(Removed((spread.job_id,), COLLECTED), now)

    # ---- messages

    def set_ack(self, sender: str, message: SetAck, now: float) -> None:
        """Another node has a job acknowledged: so it is here."""
        job_id, theirs = message.job, set(message.may_have)
        job = self._jobs.by_id.get(job_id)
        spread = self._jobs.spreads.by_job.get(job_id)
        if job is None:
            if theirs and spread is None:
                # A copy of a job that was never here may still come: it must not stay.
                buried = Buried(job_id, now + BURIED, True, 0)
                self._jobs.spreads.bury(buried, now)
            self._outlet.send(sender, GotAck(job_id, False))
            return
        if spread is None:  # no other node has it
            self._desk.remove([job_id], "acknowledged", now)
            self._outlet.send(sender, GotAck(job_id, True))
            return
        self._ack(spread, now)
        if self._jobs.by_id.get(job_id) is not job:
            self._outlet.send(sender, GotAck(job_id, True))
            return
        self._answer(sender, job, spread, theirs, now)

    def _answer(
        self, sender: str, job: Job, spread: Spread, theirs: set[str], now: float
    ) -> None:
        """The node that knows of more copies collects them."""
        own = set(spread.may_have)
        if not theirs or own <= theirs:
            self._outlet.send(sender, GotAck(job.job_id, True))
        self._copies.grow(spread, tuple(theirs), now)
        if not theirs or not own <= theirs:
            self.collect(spread, now)

    def got_ack(self, sender: str, message: GotAck, now: float) -> None:
        """Another node knows that a job is acknowledged."""
        spread = self._jobs.spreads.by_job.get(message.job)
        if spread is None or not spread.is_acked:
            return
        if spread.is_bare and message.knows:
            self._drop(spread, now)  # the one who has the job collects it
            return
        if message.knows or sender in spread.may_have:
            self._copies.grow(spread, (sender,), now)
        spread.confirmed |= {sender}
        if not self._missing(spread):
            self._drop(spread, now)
