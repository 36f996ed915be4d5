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
from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.claim import Claim
from rq.queues.attempts.worker import Worker
from rq.queues.owner import Owner
from rq.queues.runner import abort
from rq.queues.runner import finish as ending
from rq.queues.runner.abort import Abort, FailedStarts
from rq.queues.runner.batches import Batches
from rq.queues.runner.launch import Launcher
from rq.queues.runner.left_processes import LeftProcesses
from rq.queues.runner.orphans import Orphans
from rq.queues.runner.reports import Reports
from rq.queues.runner.script_file import ScriptFile
from rq.queues.runner.staying import Staying
from rq.queues.tasks import Tasks
from rq.scripts.script import KILL, TERM
from rq.scripts.slots import Slot, Slots
from rq.spool import lost_attempts
from rq.states import Event

log = logging.getLogger(__name__)


class Runner:
    """The attempts of one queue."""

    def __init__(self, owner: Owner, null: int) -> None:
        self.owner = owner
        self._claims: list[Claim] = []
        self._running: dict[str, Claim] = {}
        self._slots = Slots(
            owner.queue.path / "lease",
            owner.opened.lease_prefix,
            owner.spool.journal.start,
        )
        self._failed_starts = FailedStarts()
        self.tasks = Tasks(owner.loop)
        self.left_processes = LeftProcesses(owner, self._slots)
        self._file = ScriptFile(owner)
        self._reports = Reports(owner, self.tasks, self._exited)
        self._launcher = Launcher(owner, self._file, null, self._reports.hear)
        self._orphans = Orphans(owner, self._slots, self.tasks)
        self._staying = Staying(owner, self._slots, null, self._file, self._orphans)
        self._staying.on_exited = self._exited
        self._staying.on_unread = self._take_back
        self.pool = self._staying.pool
        self._file.on_look = self.pool.know
        self.batches = Batches(
            owner,
            self._slots,
            self._file,
            self._launcher,
            self._reports,
            self._orphans,
            self.tasks,
            self._failed_starts,
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
        while owner.admission.may_start and owner.slots_free > 0:
            known = self.pool.free > 0
            not_before = self._file.not_before(now, known)
            if not_before is not None:
                return not_before
            if self._persistent and not self.pool.free:
                return self._staying.want(now)
            try:
                msg_id, later = owner.backlog.next_due(now)
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
            key = owner.backlog.exclusion_key(msg_id)
            worker = self.pool.take() if self._persistent else None
            slot = worker.slot if worker else self._slots.take()
        except (Unread, OSError) as error:
            owner.backlog.put_back(msg_id)
            self._file.lacks(error, now)
            return
        owner.backlog.remove(msg_id)
        try:
            message = owner.spool.claim(msg_id, slot.number)
        except (Unread, OSError, MemoryError) as error:
            self._release(slot, worker)
            owner.backlog.add(msg_id)
            self._file.lacks(error, now)
            return
        except (BadMessage, NoSuchMessage) as error:
            self._release(slot, worker)
            lost_attempts.fail_malformed(owner.spool, msg_id, str(error))
            return
        except Exception as error:
            log.exception("a message could not be claimed: %s", fields(msg_id=msg_id))
            self._release(slot, worker)
            lost_attempts.fail_malformed(owner.spool, msg_id, abort.unforeseen(error))
            return
        owner.backlog.gather_riders(msg_id, group)
        owner.attempts.claim(msg_id)
        owner.backlog.take_key(key, msg_id)
        self._claims.append(Claim(message, slot, worker, key, wait_us, seq))

    def _release(self, slot: Slot, worker: Worker | None) -> None:
        """Take back what was reserved for an attempt that did not begin."""
        if worker is not None:
            self.pool.release(worker)
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
        return self.pool.busy or self.owner.attempts.at_work > 0

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
            try:
                self._start(claim)
            except OSError as error:
                self._not_started(claim, error)
            except MemoryError:
                lack = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
                self._not_started(claim, lack)
            except Exception as error:  # the others start all the same
                log.exception("a start failed: %s", fields(msg_id=claim.msg_id))
                self._give_back(claim, self._failed_starts.fault(claim.msg_id, error))

    def _start(self, claim: Claim) -> None:
        if claim.worker is not None:
            attempt = self._launcher.hand(claim, claim.worker)
        else:
            attempt = self._launcher.spawn(claim, self._script_ended)
            self._file.started()
        self._failed_starts.forget(claim.msg_id)
        self.owner.attempts.start([attempt])
        self._running[claim.msg_id] = claim

    def _not_started(self, claim: Claim, error: OSError) -> None:
        why = abort.why_not_started(self.owner.config.script, claim.message, error)
        if why.cause is Cause.FOLDER:
            why = self._failed_starts.refuse(claim.msg_id, why.cause, why.text)
        log.warning(
            "a script could not be started: %s",
            fields(msg_id=claim.msg_id, reason=why.text),
        )
        self._file.not_started(why.cause, why.text, self.owner.spool.clock())
        self._give_back(claim, why)

    def _give_back(self, claim: Claim, why: Abort) -> None:
        self.owner.attempts.forget(claim.msg_id)
        self._release(claim.slot, claim.worker)
        abort.give_back(self.owner, claim, why)

    def _take_back(self, attempt: Attempt) -> None:
        """Its worker has ended before it could read the message: this was no attempt."""
        claim = self._running.pop(attempt.msg_id)
        if attempt.said.by is not None:
            decided = ending.decide(self.owner, attempt)
            why = Abort(decided.event, decided.cause, decided.text)
        else:
            text = "its worker ended before it had read the message"
            why = Abort(Event.REQUEUE, Cause.SPAWN, text)
        self._give_back(claim, why)

    # ---- ending

    def _script_ended(self, attempt: Attempt) -> None:
        """The script has ended and its pipe is read to the end."""
        assert attempt.script.ending is not None
        attempt.end(attempt.script.ending)
        self._exited(attempt)

    def _exited(self, attempt: Attempt) -> None:
        """The attempt is over: finish it when nothing of it is left."""
        if attempt.dups:
            return
        if attempt.script.ending is None:  # it lives on, ready for the next
            self._finish(attempt)
            return
        # Whoever hid from the two cheap questions must not meet the next attempt.
        thoroughly = ending.decide(self.owner, attempt).event in ending.AGAIN
        finish = functools.partial(self._finish, attempt)
        self._orphans.clear(attempt.script, attempt.slot, thoroughly, finish)

    def _finish(self, attempt: Attempt) -> None:
        claim = self._running.pop(attempt.msg_id)
        self.owner.attempts.forget(attempt.msg_id)
        self._reports.forget(attempt)
        decided = ending.decide(self.owner, attempt)
        attempt.close_log(decided.event not in ending.WELL)
        ending.fire(self.owner, attempt, claim, decided)
        abort.free_key(self.owner, claim)
        if claim.worker is None:
            attempt.script.hang_up()
            self._slots.free(attempt.slot.number)
        elif attempt.script.ending is None:
            self.pool.release(claim.worker)
        else:
            self.pool.forget(claim.worker)
        self.owner.wake()

    # ---- being told to end

    def cancel(self, msg_id: str, who: str) -> bool:
        """End a running message as err; False when it is not running.

        WrongState when it runs in a batch with others: all share one process.
        """
        batch = self.owner.attempts.batch_of(msg_id)
        if batch is not None and batch.left > 1:
            raise WrongState(
                f"msg runs in a batch with {batch.left - 1} more in one process, "
                f"which can only be ended whole: `rq cancel --batch {msg_id}`"
            )
        if batch is not None:
            self.batches.cancel(batch, who)
            return True
        attempt = self.owner.attempts.of(msg_id)
        if attempt is None:
            return False
        attempt.said.by = attempt.said.by or who
        worker = self._running[msg_id].worker
        if worker is not None:
            worker.retire()
        self._end(attempt)
        return True

    def cancel_batch(self, msg_id: str, who: str) -> int:
        """End the batch that a message runs in; return how many end with it.

        WrongState when it runs in none.
        """
        batch = self.owner.attempts.batch_with(msg_id)
        if batch is None:
            raise WrongState("msg does not run in a batch")
        self.batches.cancel(batch, who)
        return batch.left

    def _end(self, attempt: Attempt) -> None:
        attempt.script.signal(TERM)
        self.owner.loop.call_later(self.owner.main.grace, self._kill, attempt)

    def _kill(self, attempt: Attempt) -> None:
        if attempt.script.ending is None:
            log.warning(
                "a script ignores TERM; RQ kills its group: %s",
                fields(msg_id=attempt.msg_id, pid=attempt.pid),
            )
            attempt.script.signal(KILL)

    async def stop(self) -> None:
        """Let workers end, then make them: grace, TERM, KILL; all have ended after."""
        owner = self.owner
        grace = owner.main.grace
        self.pool.renew()
        if await self._idle(grace):
            return
        for attempt in owner.attempts:
            attempt.cause = Cause.STOP
        for batch in owner.attempts.batches:
            batch.stopped = True
        self._signal_all(TERM)
        if await self._idle(min(grace, 5.0)):
            return
        self._signal_all(KILL)
        await self._idle(30.0)

    def _signal_all(self, sig: int) -> None:
        for attempt in self.owner.attempts:
            if attempt.batch is None:
                attempt.script.signal(sig)
        for (
            batch
        ) in self.owner.attempts.batches:  # also one whose messages have all ended
            if batch.script is not None:
                batch.script.signal(sig)
        for worker in self.pool:
            worker.script.signal(sig)

    async def _idle(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._busy:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.02)
        return True

    @property
    def _busy(self) -> bool:
        at_work = not self.owner.attempts.none_left
        return bool(at_work or self.tasks or list(self.pool))
