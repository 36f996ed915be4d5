"""The turns of a queue's loop: whatever happens asks for a turn by `Wakeup.ask`.

A turn is one function without an await: no request is read, no script is heard and no
timer runs in between. What asked before it began shares it, and shares its sync.

The order within a turn, and what each step may rely on

1. Rows become messages, due messages are claimed, leases are handed out: events in the
   open group, while there are slots and room.
2. `write`. A claim that is written outlives a kill -9. So scripts may start whose messages
   were durable before this turn: if power fails now, only the claim is lost, and the next
   start finds the message in que. Their start overlaps the sync.
3. `commit`: one sync for all that came in since the last turn.
4. Replies leave, and tasks that wait for the sync (`committed`) go on. Not before: a reply tells what
   memory held, and a power cut must not take that back.
   Then the index may hear up to where the journal is durable (`index.word`).
5. Scripts start whose messages became durable just now.
6. Folders are made for some milliseconds, oldest first; how many still wait sets how fast
   requests are taken. Checkpoint, index and rows (messages that still lie as lines of a
   file) move on by a step each.

What is true at all times

- A script never starts for a message whose acceptance, or whose last change of content, is
  not durable (`launch` gets the number of the last durable event).
- No reply waits for a folder. While requests come in, folders wait up to WAIT seconds; past
  half of the lag that is allowed they go first, and requests are taken at their pace.
- While scripts end one after the other and no client waits, a group stays open for SHARE
  seconds, over several turns: written in each, synced once.

What may happen

- A step fails by a fault of RQ: the turn ends there, is logged, and the next one comes in
  a second. What was fired is in memory and in the open group; no reply has left for it.
- The disk takes no writes (DiskFailed): replies wait, the turn is tried again after a
  pause that grows, and after a while clients hear that the outcome is unknown.
- The directory is another one now (Displaced): nothing is written any more, and all who
  wait hear so. The process ends its scripts and itself.
- A person must decide first (`restored`): a turn only answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rq import back_off
from rq.errors import DiskFailed, Displaced
from rq.index.word import Teller
from rq.queues import housekeeping
from rq.queues.asking.asker import Asker
from rq.queues.control.connections import Clients
from rq.queues.delivery.delivery import Delivery
from rq.queues.feed import Feed
from rq.queues.leases.desk import Desk
from rq.queues.maintenance.checkpoints import Checkpoints
from rq.queues.owner.owner import Owner
from rq.queues.runner.runner import Runner

SLICE = 0.005  # seconds of folder work between commits
SHARE = 0.005  # seconds that ends of attempts may wait for others to share a sync
QUIET = 0.002  # seconds without a request before folders are made
RESTS = 0.05  # seconds between looks at folders that have to be left alone for now
WAIT = 1.0  # seconds that folders may wait while requests come in

log = logging.getLogger(__name__)


class Loop:
    """The loop of one queue, turn by turn."""

    def __init__(
        self,
        owner: Owner,
        runner: Runner,
        leases: Desk,
        asker: Asker,
        checkpoints: Checkpoints,
        delivery: Delivery,
        feed: Feed,
        clients: Clients,
        on_displaced: Callable[[str], None],
    ) -> None:
        """`on_displaced`: the directory is not the queue's any more, and why."""
        self.owner = owner
        self.runner = runner
        self._leases = leases
        self._asker = asker
        self._replies = clients.replies
        self._pace = clients.pace
        self._on_displaced = on_displaced
        self._status: int | None = None  # with which the process ends
        self._checkpoints = checkpoints
        self._delivery = delivery
        self._feed = feed
        self._alarm: asyncio.TimerHandle | None = None
        self._quiet: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._failures = 0
        self._sync_at: float | None = None  # when what is written has to be synced
        self._wakeup = owner.wakeup
        self._teller = Teller(
            owner.root, owner.queue.name, lambda: owner.spool.durable, owner.loop
        )

    async def run(self) -> int:
        """Take turns until `end`; return the exit status."""
        while True:
            await self._wakeup.wanted()
            if self._status is not None:
                self._teller.close()
                return self._status
            self._turn()

    def end(self, status: int) -> None:
        """Take no more turns; the first status stands."""
        if self._status is None:
            self._status = status
        self._wakeup.ask()

    def _turn(self) -> None:
        try:
            self._turn_once()
        except Exception:
            log.exception(
                "RQ failed in the main loop of the queue; it goes on in a second"
            )
            self._wakeup.ask_in(1.0)

    def _turn_once(self) -> None:
        owner = self.owner
        if not self._may_change():
            return
        spool = owner.spool
        fed = self._feed.some(self._slice)
        later = self._asker.turn(self._slice)
        later = _sooner(later, self.runner.claim_due())
        later = _sooner(later, self._leases.serve())
        self._leases.write_down()
        durable_seq = spool.durable_seq
        sync = self._must_sync(durable_seq)
        if spool.write(last=sync):
            self.runner.launch(durable_seq)
            if spool.pending and not sync:
                self._set_alarm(later)
                return
        if spool.pending and not self._commit():
            return
        self._answer()
        self._teller.tell()
        owner.admission.forget_admin()
        self.runner.launch(spool.durable_seq)
        lag = spool.lag
        more = self._settle()
        self._pace.resume(lag - spool.lag)
        more = self._checkpoints.mind() or more or fed
        more = self._feed.remove_used() or more
        if more or spool.pending:
            self._wakeup.ask()
        elif spool.stuck and self._stuck is None:
            self._stuck = owner.loop.call_later(1.0, self._try_stuck)
        self._set_alarm(_sooner(later, owner.admission.goes_on_at))
        self._tell_queues()

    def _tell_queues(self) -> None:
        """Begin to tell other queues what is durable now, where that concerns them."""
        spool = self.owner.spool
        if spool.owed:
            self._delivery.start()
        if spool.events.hints:
            self._asker.hint()

    def _may_change(self) -> bool:
        """Whether anything may happen; if not, answer those who wait."""
        if self.owner.admission.restored:
            self._answer()  # nothing changes before a person decides
            return False
        if self.owner.spool.displaced:
            self._give_up(self.owner.spool.displaced)
            return False
        return True

    def _must_sync(self, durable_seq: int) -> bool:
        """Whether this turn has to sync what was written.

        While scripts end one after the other, and no client waits for an answer, one sync
        is enough for the ends of some milliseconds.
        """
        owner = self.owner
        if not self.runner.flows or self._replies.waiting or self._wakeup.awaited:
            return True
        if self.runner.waits_for_sync(durable_seq) or owner.spool.group_full:
            return True
        now = owner.loop.time()
        if self._sync_at is None:
            self._sync_at = now + SHARE
            owner.loop.call_at(self._sync_at, self._wakeup.ask)
        return now >= self._sync_at

    def _settle(self) -> bool:
        """Make folders for a slice; return whether more can be made at once.

        While requests come in and the lag is small, folders wait: clients wait for
        answers, and none waits for a folder.
        """
        spool = self.owner.spool
        if not self._pace.busy(QUIET):
            more = spool.settle_some(self._slice())
        elif spool.waited > WAIT:
            more = spool.settle_some(SLICE / 5)
        else:
            self._look_again(QUIET)
            return False
        if not more and spool.rests:
            self._look_again(RESTS)
        return more

    def _slice(self) -> float:
        """Return how many seconds of a turn may go into what no client waits for."""
        busy = self.owner.attempts.started or self._pace.busy(QUIET)
        return SLICE / 5 if busy and not self._pace.behind else SLICE

    def _look_again(self, seconds: float) -> None:
        """Ask for a turn for the folders that are left, if there are some."""
        if self.owner.spool.lag and self._quiet is None:
            self._quiet = self.owner.loop.call_later(seconds, self._is_quiet)

    def _try_stuck(self) -> None:
        self._stuck = None
        self._wakeup.ask()

    def _is_quiet(self) -> None:
        self._quiet = None
        self._wakeup.ask()

    def _commit(self) -> bool:
        spool = self.owner.spool
        try:
            spool.commit()
        except Displaced as error:
            self._give_up(str(error))
            return False
        except DiskFailed as error:
            self._failures += 1
            log.error("%s; requests wait for their answers, RQ tries again", error)
            self._replies.stall(spool.journal_failed)
            self._wakeup.ask_in(back_off.delay(self._failures, 1.0, 30.0))
            return False
        self._failures = 0
        self._sync_at = None
        self._checkpoints.committed()
        return True

    def _give_up(self, why: str) -> None:
        """Write no more: no start would find it. What waits for a commit is refused."""
        admission = self.owner.admission
        if admission.displaced is None:
            admission.displaced = f"{why}: the queue accepts nothing, and ends"
            self._on_displaced(why)
        error = Displaced(admission.displaced)
        self._replies.refuse_all(error)
        self._wakeup.tell_failed(error)

    def _answer(self) -> None:
        self._replies.flush()
        self._wakeup.tell_committed()

    def _set_alarm(self, later: float | None) -> None:
        """Ask for a turn when the next message is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if later is not None:
            away = min(housekeeping.TICK, max(0.0, later - self.owner.spool.clock()))
            self._alarm = self.owner.loop.call_later(away, self._wakeup.ask)


def _sooner(first: float | None, second: float | None) -> float | None:
    """Return the sooner of two moments that may not be known."""
    if first is None or second is None:
        return first if second is None else second
    return min(first, second)
