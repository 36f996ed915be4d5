"""Claims what is due, lets it start, and ends its attempts.

Order that must not change: the claim is durable before the script starts; all of its
children have ended before its final event; the final event is durable before its folder
moves.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
import time

from rq.causes import Cause
from rq.config.settings import PERSISTENT
from rq.errors import BadMessage, NoSuchMessage, Unread, WrongState
from rq.logs import fields
from rq.queues.attempts import abort
from rq.queues.attempts import finish as ending
from rq.queues.attempts.abort import Hindered, Refusal
from rq.queues.attempts.attempt import Worker
from rq.queues.attempts.claim import Claim
from rq.queues.attempts.left_processes import Ghosts
from rq.queues.attempts.reports import Hearing
from rq.queues.attempts.script_file import ScriptFile
from rq.queues.attempts.start import Starter
from rq.queues.attempts.sweep import Sweeper
from rq.queues.batches.start import Batches
from rq.queues.owner import Owner
from rq.queues.schedule.item import Item
from rq.queues.tasks import Tasks
from rq.queues.workers.staying import Staying
from rq.queues.workers.worker import Resident
from rq.scripts.script import KILL, TERM
from rq.scripts.slots import Slot, Slots
from rq.spool import lost_attempts
from rq.states import Event

log = logging.getLogger(__name__)


class Runner:
    """The workers of one queue."""

    def __init__(self, owner: Owner, null: int) -> None:
        self.owner = owner
        self._claims: list[Claim] = []
        self._running: dict[str, Claim] = {}
        self._slots = Slots(
            owner.queue.path / "lease",
            owner.opened.lease_prefix,
            owner.spool.journal.start,
        )
        self._hindered = Hindered()
        self.tasks = Tasks(owner.loop)
        self.ghosts = Ghosts(owner, self._slots)
        self._file = ScriptFile(owner)
        self._hearing = Hearing(owner, self.tasks, self._exited)
        self._starter = Starter(owner, self._file, null, self._hearing.hear)
        self._sweeper = Sweeper(owner, self._slots, self.tasks)
        self._staying = Staying(owner, self._slots, null, self._file, self._sweeper)
        self._staying.on_exited = self._exited
        self._staying.on_unread = self._take_back
        self.pool = self._staying.pool
        self._file.on_look = self.pool.know
        self.batches = Batches(
            owner,
            self._slots,
            self._file,
            self._starter,
            self._hearing,
            self._sweeper,
            self.tasks,
            self._hindered,
        )

    # ---- claiming

    def claim_due(self) -> float | None:
        """Claim all that is due and has a slot; return when to look again."""
        if self.owner.config.batch:
            return self.batches.claim_due()
        return self._claim_due()

    def _claim_due(self) -> float | None:
        owner = self.owner
        now = owner.spool.clock()
        while owner.may_start and owner.slots_free > 0:
            known = self.pool.free > 0
            not_before = self._file.not_before(now, known)
            if not_before is not None:
                return not_before
            if self._persistent and not self.pool.free:
                return self._staying.want(now)
            try:
                msg_id, later = owner.waiting.next_due(
                    now, owner.exclusion_key, owner.busy_keys
                )
            except Unread as error:
                self._file.lacks(error, now)
                continue
            if msg_id is None:
                if later is None:
                    self._file.is_back()  # nobody waits for it: nothing is known
                return later
            self._claim(msg_id, now)
            if owner.spool.journal.full:
                return now
        return None

    def _claim(self, msg_id: str, now: float) -> None:
        owner = self.owner
        entry = owner.spool.entries[msg_id]
        group = entry.key
        seq = max(entry.seq, entry.said)
        wait_us = int(max(0.0, now - max(entry.due, entry.since)) * 1e6)
        try:
            key = owner.exclusion_key(msg_id)
            resident = self.pool.take() if self._persistent else None
            slot = resident.slot if resident else self._slots.take()
        except (Unread, OSError) as error:
            owner.waiting.add(Item(entry.due, entry.seq, msg_id))
            self._file.lacks(error, now)
            return
        owner.leaves(msg_id)
        try:
            message = owner.spool.claim(msg_id, slot.number)
        except (Unread, OSError, MemoryError) as error:
            self._release(slot, resident)
            owner.waits(msg_id)
            self._file.lacks(error, now)
            return
        except (BadMessage, NoSuchMessage) as error:
            self._release(slot, resident)
            lost_attempts.fail_malformed(owner.spool, msg_id, str(error))
            return
        except Exception as error:
            log.exception("a message could not be claimed: %s", fields(msg_id=msg_id))
            self._release(slot, resident)
            lost_attempts.fail_malformed(owner.spool, msg_id, abort.unforeseen(error))
            return
        owner.gather_riders(msg_id, group)
        owner.claimed.add(msg_id)
        if key is not None:
            owner.busy_keys[key] = msg_id
        self._claims.append(Claim(message, slot, resident, key, wait_us, seq))

    def _release(self, slot: Slot, resident: Resident | None) -> None:
        """Take back what was reserved for an attempt that did not begin."""
        if resident is not None:
            self.pool.release(resident)
        else:
            os.close(slot.fd)
            self._slots.free(slot.number)

    @property
    def _persistent(self) -> bool:
        return self.owner.config.worker == PERSISTENT

    def waits_for_sync(self, seq: int) -> bool:
        """Whether a message is claimed whose acceptance is a later event than `seq`."""
        alone = any(one.seq > seq for one in self._claims)
        return alone or self.batches.waits_for_sync(seq)

    @property
    def flows(self) -> bool:
        """Whether scripts are at work, so that another end most likely comes soon."""
        return self.pool.busy or bool(self.owner.workers)

    def look_at_script(self) -> None:
        """Forget the pause after a script error: something may have changed."""
        self._file.look_again()
        self.pool.hold_no_longer()

    def clock_went_back(self) -> None:
        """Forget all pauses before a new start."""
        self._file.clock_went_back()
        self.pool.hold_no_longer()

    # ---- starting

    def launch(self, seq: int) -> None:
        """Start what was claimed and accepted no later than event `seq`.

        Its claim is written, so a kill -9 does not forget the attempt; the sync of the
        claim need not be waited for, that of its acceptance is, and of the last change
        of its content: a file that a power cut tears must be in the journal.
        """
        self.batches.launch(seq)
        claims = [one for one in self._claims if one.seq <= seq]
        if not claims:
            return
        self._claims = [one for one in self._claims if one.seq > seq]
        for claim in claims:
            self.owner.claimed.discard(claim.msg_id)
            try:
                self._start(claim)
            except OSError as error:
                self._not_started(claim, error)
            except MemoryError:
                lack = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
                self._not_started(claim, lack)
            except Exception as error:  # the others start all the same
                log.exception("a start failed: %s", fields(msg_id=claim.msg_id))
                self._give_back(claim, self._hindered.fault(claim.msg_id, error))

    def _start(self, claim: Claim) -> None:
        if claim.resident is not None:
            worker = self._starter.hand(claim, claim.resident)
        else:
            worker = self._starter.spawn(claim, self._script_ended)
            self._file.started()
        self.owner.started += 1
        self._hindered.forget(claim.msg_id)
        self.owner.workers[claim.msg_id] = worker
        self._running[claim.msg_id] = claim

    def _not_started(self, claim: Claim, error: OSError) -> None:
        why = abort.why_not_started(self.owner.config.script, claim.message, error)
        if why.cause is Cause.FOLDER:
            why = self._hindered.refuse(claim.msg_id, why.cause, why.text)
        log.warning(
            "a script could not be started: %s",
            fields(msg_id=claim.msg_id, reason=why.text),
        )
        self._file.not_started(why.cause, why.text, self.owner.spool.clock())
        self._give_back(claim, why)

    def _give_back(self, claim: Claim, why: Refusal) -> None:
        self._release(claim.slot, claim.resident)
        abort.give_back(self.owner, claim, why)

    def _take_back(self, worker: Worker) -> None:
        """Its worker has ended before it could read the message: this was no attempt."""
        claim = self._running.pop(worker.msg_id)
        del self.owner.workers[worker.msg_id]
        if worker.said.by is not None:
            decided = ending.decide(self.owner, worker)
            why = Refusal(decided.event, decided.cause, decided.text)
        else:
            text = "its worker ended before it had read the message"
            why = Refusal(Event.REQUEUE, Cause.SPAWN, text)
        self._give_back(claim, why)

    # ---- ending

    def _script_ended(self, worker: Worker) -> None:
        """The script has ended and its pipe is read to the end."""
        assert worker.script.ending is not None
        worker.end(worker.script.ending)
        self._exited(worker)

    def _exited(self, worker: Worker) -> None:
        """The attempt is over: finish it when nothing of it is left."""
        if worker.dups:
            return
        if worker.script.ending is None:  # it lives on, ready for the next
            self._finish(worker)
            return
        # Whoever hid from the two cheap questions must not meet the next attempt.
        thoroughly = ending.decide(self.owner, worker).event in ending.AGAIN
        finish = functools.partial(self._finish, worker)
        self._sweeper.clear(worker.script, worker.slot, thoroughly, finish)

    def _finish(self, worker: Worker) -> None:
        claim = self._running.pop(worker.msg_id)
        del self.owner.workers[worker.msg_id]
        self._hearing.forget(worker)
        decided = ending.decide(self.owner, worker)
        worker.close_log(decided.event not in ending.WELL)
        ending.fire(self.owner, worker, claim, decided)
        abort.free_key(self.owner, claim)
        if claim.resident is None:
            worker.script.hang_up()
            self._slots.free(worker.slot.number)
        elif worker.script.ending is None:
            self.pool.release(claim.resident)
        else:
            self.pool.forget(claim.resident)
        self.owner.wake()

    # ---- being told to end

    def cancel(self, msg_id: str, who: str) -> bool:
        """End a running message as err; False when it is not running.

        WrongState when it runs in a batch with others: all share one process.
        """
        together = self.owner.batch_of(msg_id)
        if together is not None and together.left > 1:
            raise WrongState(
                f"msg runs in a batch with {together.left - 1} more in one process, "
                f"which can only be ended whole: `rq cancel --batch {msg_id}`"
            )
        if together is not None:
            self.batches.cancel(together, who)
            return True
        worker = self.owner.workers.get(msg_id)
        if worker is None:
            return False
        worker.said.by = worker.said.by or who
        resident = self._running[msg_id].resident
        if resident is not None:
            resident.retire()
        self._end(worker)
        return True

    def cancel_batch(self, msg_id: str, who: str) -> int:
        """End the batch that a message runs in; return how many end with it.

        WrongState when it runs in none.
        """
        for together in self.owner.batches:
            if msg_id in together:
                self.batches.cancel(together, who)
                return together.left
        raise WrongState("msg does not run in a batch")

    def _end(self, worker: Worker) -> None:
        worker.script.signal(TERM)
        self.owner.loop.call_later(self.owner.main.grace, self._kill, worker)

    def _kill(self, worker: Worker) -> None:
        if worker.script.ending is None:
            log.warning(
                "a script ignores TERM; RQ kills its group: %s",
                fields(msg_id=worker.msg_id, pid=worker.pid),
            )
            worker.script.signal(KILL)

    async def stop(self) -> None:
        """Let workers end, then make them: grace, TERM, KILL; all have ended after."""
        owner = self.owner
        grace = owner.main.grace
        self.pool.renew()
        if await self._idle(grace):
            return
        for worker in owner.workers.values():
            worker.cause = Cause.STOP
        for together in owner.batches:
            together.stopped = True
        self._signal_all(TERM)
        if await self._idle(min(grace, 5.0)):
            return
        self._signal_all(KILL)
        await self._idle(30.0)

    def _signal_all(self, sig: int) -> None:
        for worker in self.owner.workers.values():
            if worker.batch is None:
                worker.script.signal(sig)
        for together in self.owner.batches:  # also one whose messages have all ended
            if together.script is not None:
                together.script.signal(sig)
        for resident in self.pool:
            resident.script.signal(sig)

    async def _idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._busy:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
        return True

    @property
    def _busy(self) -> bool:
        owner = self.owner
        at_work = owner.workers or owner.claimed or owner.batches
        return bool(at_work or self.tasks or list(self.pool))
