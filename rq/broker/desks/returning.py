"""Nodes that come back: what they are told at once, and what they hold until then. Pure.

While a node was away others acknowledged jobs of which it has copies, and queued some. It
knows of none of that when its first client asks. So two things are true:

- Who gets a link to a node tells it, in one go, of each job of which that node may have a
  copy: that it is acknowledged, deleted, or queued here. Behind the last of it goes a mark
  (`Mark`). No pause that has grown while the node was away has to end for that.
- Who was away (it starts, or stood still, or others were silent for longer than the node
  time-out) hands out no job of before that may be on a node whose mark has not come. It
  waits as long as that node tells something, and two seconds more; a node of an earlier
  version sends no mark, and two seconds are all; so they are if its link stood all
  the time, as when others said that it does not answer. A new link begins from the start.

A partition is not waited for: a node that does not answer, and is suspected, holds up nothing
until it is heard of again. That a node answers a ping says nothing: what it tells may be a
million messages behind that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf

from rq.broker.cluster.messages import IsQueued, Mark, Message, SetAck
from rq.broker.desks.outlet import Outlet
from rq.broker.state.deadlines import Deadline, Deadlines
from rq.broker.state.job import Job, State
from rq.broker.state.jobs import Jobs
from rq.broker.state.spread import Spread, Spreads

HOLD = 2.0  # seconds without a word until a node is not waited for any more
LONGEST = 120.0  # seconds, if its mark is lost, and it goes on talking
_STALL = 1.0  # seconds that a node must have stood still, at least
_AT_ONCE = 400  # jobs that are looked at in a turn
_LOOKED = 200  # jobs of a queue, to find one that is not held


_SENT: Iterator[str] = iter(())  # all but the mark, which waits for its greeting


class Telling:
    """What is told to nodes whose links stand again."""

    def __init__(self, outlet: Outlet, jobs: Jobs) -> None:
        self._outlet = outlet
        self._jobs = jobs
        self._left: dict[str, Iterator[str]] = {}  # by node: ids of jobs

    def begin(self, node: str) -> None:
        """Our link to a node stands, which may know nothing of what was said before."""
        spreads = self._jobs.spreads
        self._left[node] = iter([*spreads.by_job, *spreads.tombs])

    @property
    def goes_on(self) -> bool:
        """Whether there is more to tell, and room for it on its way."""
        peers = self._outlet.peers
        return any(
            peers.has_room(node)
            for node, left in self._left.items()
            if left is not _SENT or peers.takes_marks(node) is not None
        )

    @property
    def is_busy(self) -> bool:
        """Whether there is more to tell."""
        return bool(self._left)

    def tick(self) -> None:
        """Tell some more to each."""
        for node, left in list(self._left.items()):
            if not self._outlet.peers.is_member(node):
                del self._left[node]
            elif self._outlet.peers.has_room(node):
                some = list(islice(left, _AT_ONCE))
                for job_id in some:
                    self._tell(node, job_id)
                if len(some) < _AT_ONCE:
                    self._end(node)

    def _end(self, node: str) -> None:
        """All is told. Whether a node takes a mark is known when it has answered once."""
        del self._left[node]
        if self._outlet.peers.takes_marks(node) is None:
            self._left[node] = _SENT
        elif self._outlet.peers.takes_marks(node):
            self._outlet.send(node, Mark())

    def _tell(self, node: str, job_id: str) -> None:
        spreads = self._jobs.spreads
        spread, tomb = spreads.by_job.get(job_id), spreads.tombs.get(job_id)
        message: Message | None = None
        if spread is not None:
            message = self._of(spread, node)
        elif tomb is not None and tomb.is_over and node in tomb.unaware:
            message = SetAck(job_id, ())
        if message is not None:
            self._outlet.send(node, message)

    def _of(self, spread: Spread, node: str) -> Message | None:
        """Return what a node is to know of a job; None: nothing."""
        job = self._jobs.by_id.get(spread.job_id)
        may_have = spread.is_bare or node in spread.may_have
        if spread.is_acked and may_have and node not in spread.confirmed:
            return SetAck(spread.job_id, tuple(sorted(spread.may_have)))
        if job is not None and job.state is State.QUEUED and may_have:
            return IsQueued(spread.job_id, 0, 0)
        return None


class Holding:
    """Which jobs are held here, until others have told what they know."""

    def __init__(self, outlet: Outlet, spreads: Spreads) -> None:
        self.patience = inf  # seconds that this node may stand still
        self.stood_still = False  # all links are to be made again
        self.deadlines: Deadlines[Deadline[str]] = Deadlines()
        self._outlet = outlet
        self._spreads = spreads
        self._away: set[str] = set()  # nodes that were silent for too long, and are
        self._waited: dict[str, Deadline[str]] = {}  # by node whose mark is to come
        self._latest: dict[str, float] = {}
        self.has_released = False  # a node was waited for, and is not any more
        self._linked: set[str] = set()  # of those: whose link was made since
        self._since = 0.0  # jobs that came later are not held
        self._beat_at = 0.0

    # ---- who is waited for

    def begin(self, nodes: Iterable[str], now: float) -> None:
        """Wait for what these nodes tell."""
        self._since = now
        for node in nodes:
            self._away.discard(node)
            self._linked.discard(node)
            self._latest[node] = now + LONGEST
            self._wait(node, now)

    def _wait(self, node: str, now: float) -> None:
        self._cancel(node)
        until = min(now + HOLD, self._latest[node])
        self._waited[node] = Deadline(node, until)
        self.deadlines.add(self._waited[node])

    def _cancel(self, node: str) -> bool:
        if (before := self._waited.pop(node, None)) is None:
            return False
        self.deadlines.cancel(before)
        return True

    def silent(self, node: str) -> None:
        """A node does not answer: it is waited for when it is heard of again."""
        self._away.add(node)

    def heard(self, node: str, now: float) -> None:
        """A node gave a sign of life."""
        if node in self._away:
            self.begin([node], now)

    def linked(self, node: str, now: float) -> None:
        """The link of a node to this one stands: now it tells what it knows."""
        self.heard(node, now)
        if node in self._waited:
            self._linked.add(node)
            self._wait(node, now)

    def tells(self, node: str, now: float) -> None:
        """A node has said something of a job: its mark is behind that, if it sends one.
        It does so only over a link that is new."""
        self.heard(node, now)
        marks = node in self._linked and self._outlet.peers.takes_marks(node)
        if node in self._waited and marks:
            self._wait(node, now)

    def marked(self, node: str, _message: Mark, _now: float) -> None:
        """A node has told all."""
        self._away.discard(node)
        self.has_released |= self._cancel(node)

    def beat(self, now: float) -> None:
        """This node runs, which it says several times a second while it is in a cluster:
        who stood still for longer than others wait is taken for away by them."""
        self._look_at_clock(now)
        self._beat_at = now

    def _look_at_clock(self, now: float) -> None:
        # A look comes late on a busy machine: of so short a time nothing can be told.
        patience = max(self.patience, _STALL)
        if self._beat_at and now - self._beat_at > patience:
            self._beat_at = now
            self.stood_still = True
            self.begin(self._outlet.peers.others, now)

    def tick(self, now: float) -> None:
        """Wait no longer for those who say nothing."""
        for deadline in self.deadlines.due(now, len(self._waited) or 1):
            if self._waited.get(deadline.what) is deadline:
                del self._waited[deadline.what]
                self.has_released = True

    # ---- what is held

    def free(self, jobs: Iterable[Job], now: float) -> Iterator[Job]:
        """Give those of the first jobs that are not held."""
        self._look_at_clock(now)
        if not self._waited:
            return iter(jobs)
        return filter(self._is_free, islice(jobs, _LOOKED))

    def _is_free(self, job: Job) -> bool:
        spread = self._spreads.by_job.get(job.job_id)
        if spread is None or job.created >= self._since:
            return True
        return self._waited.keys().isdisjoint(spread.may_have)
