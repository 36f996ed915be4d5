"""Starts claimed messages, hears their scripts, and ends their attempts.

Order that must not change: the claim is written, and its acceptance durable, before the
script starts; all of its children have ended before its final event; the final event is
durable before its folder moves.

An attempt holds three things from its claim on: a slot (or the long-lived worker that has
one), its share of what may run at once with its exclusion key, and its riders, the equal
messages that it runs for. Whatever happens, it gives them back
in one of two places and once: `_give_back` when nothing was started for it, `_end` when
something was. `Attempt.phase` refuses a second end; `Attempt.outcome` a second decision.

    claimed ── launch ──> a script starts, or a worker is handed the message
       │                      │ says lines (Reports), may ask for copies (dup)
       │ cannot start         │ exits, or says `ready`
       v                      v
    _give_back            _exited: decides once, when no question of it is open
                              │ children that it left are ended (Orphans)
                              v
                          _end: last line of its log, final event, slot free

What may happen

- A script ends while a `dup` of it is still being copied: the decision waits for that, and
  `Reports` calls `_exited` again.
- A worker says `ready` and then exits, and both are heard: the second finds the outcome
  decided and does nothing. One that exits before it has read its line has made no attempt
  (`_unread`): the message goes back uncounted.
- A child has left the process group and dropped its lease: the quick look misses it. It
  would run beside the next attempt, so /proc is searched before a message runs again.
- The start fails: for a reason of this message (its folder, its params) that message alone
  waits, then goes to err; for a reason of all (no script, no processes) the queue waits.
- A person cancels, a time limit is over, or the queue stops: the script is told to end and
  ends as any other does; only what is decided about it differs.

Messages of a batch share one process: `Batches` starts and ends that, and each message of
it still ends by itself. Attempts of other hosts (`queues.leases`) end in the same function
(`runner.end`) and use nothing else of this module.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
import os
import time
from concurrent.futures import Executor

from rq.access.attempt_tokens import AttemptTokens
from rq.errors import WrongState
from rq.logs import fields
from rq.message.causes import Cause
from rq.proc import lease_holders
from rq.queues.attempts.attempt import Attempt, Batch, Task
from rq.queues.attempts.outcome import AGAIN, WELL
from rq.queues.concurrency import Tasks
from rq.queues.delivery import copies
from rq.queues.owner.owner import Owner
from rq.queues.runner import abort, pool
from rq.queues.runner.abort import Abort, FailedStarts
from rq.queues.runner.batches import Batches
from rq.queues.runner.claims import Claims
from rq.queues.runner.finish import Finisher
from rq.queues.runner.launch import Launcher
from rq.queues.runner.left_processes import LeftProcesses, Orphans
from rq.queues.runner.parts import Parts
from rq.queues.runner.reports import Reports
from rq.scripts.script import KILL, TERM
from rq.scripts.slots import Slots
from rq.scripts.time_limits import TimeLimits
from rq.words.states import Event

LOOK = 0.02  # seconds between looks at whether all have ended
AFTER_TERM, AFTER_KILL = 5.0, 30.0  # seconds, at most, that they are waited for then

log = logging.getLogger(__name__)


class Runner:
    """What runs in one queue: messages alone, with long-lived workers, in batches."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self._parts = self._new_parts()
        self.left_processes = LeftProcesses(
            owner.opened,
            owner.attempts,
            owner.backlog,
            self._parts.slots,
            owner.wakeup,
        )
        tasks = pool.Tasks(
            said=self._said, finished=self._finished, unread=self._unread
        )
        self.pool = pool.Pool(owner, self._parts, tasks)
        self.batches = Batches(owner, self._parts, self.pool)
        self._claims = Claims(owner, self._parts, self.pool)

    def _new_parts(self) -> Parts:
        owner = self.owner
        slots = Slots(
            owner.queue.path / "lease",
            owner.opened.lease_prefix,
            owner.spool.start,
        )
        tasks = Tasks(owner.loop)
        time_limits = TimeLimits(owner.loop)
        dup = functools.partial(copies.dup, owner)
        reports = Reports(owner.spool, owner.loop, tasks, dup, self._exited)
        self.tokens = tokens = AttemptTokens(owner.root, owner.name)
        return Parts(
            tokens=tokens,
            slots=slots,
            file=owner.script,
            launcher=Launcher(owner, reports, time_limits, tokens),
            reports=reports,
            orphans=Orphans(owner.settings, owner.attempts, owner.family, slots, tasks),
            finisher=Finisher(owner, tokens),
            failed_starts=FailedStarts(),
            tasks=tasks,
            time_limits=time_limits,
        )

    # ---- claiming

    def claim_due(self) -> float | None:
        """Claim all that is due and has a slot; return when to look again."""
        if self.owner.config.batch:
            return self.batches.claim_due()
        return self._claims.claim_due()

    def waits_for_sync(self, seq: int) -> bool:
        """Whether a message is claimed whose acceptance is a later event than `seq`."""
        return self._claims.any_after(seq) or self.batches.any_after(seq)

    @property
    def flows(self) -> bool:
        """Whether scripts are at work, so that another end is likely soon."""
        return self.pool.busy or self.owner.attempts.started > 0

    def look_at_script(self) -> None:
        """Forget the pause after a script error: something may have changed."""
        self._parts.file.look_again()
        self.pool.hold_no_longer()

    def clock_went_back(self) -> None:
        """Forget all pauses before a new start."""
        self._parts.file.clock_went_back()
        self.pool.hold_no_longer()

    # ---- starting

    def launch(self, seq: int) -> None:
        """Start what was claimed and accepted no later than event `seq`.

        Its claim is written, so a kill -9 does not forget the attempt; the sync of the
        claim need not be waited for, that of its acceptance is, and of the last change
        of its content: a file that a power cut tears must be in the journal.
        """
        self.batches.launch(seq)
        for attempt in self._claims.take(seq):
            if self._parts.launcher.lends(attempt.message):
                self._parts.tasks.spawn(self._lend_and_start(attempt))
            else:
                self._try_to_start(attempt)

    async def _lend_and_start(self, attempt: Attempt) -> None:
        """Start a message whose attachments another user is to read, which may take
        copies of them."""
        try:
            await self._parts.launcher.lend(attempt.message)
        except OSError as error:
            self._not_started(attempt, error)
            return
        if self.owner.admission.stopping:
            text = "the queue stopped before its attachments were copied"
            self._give_back(attempt, Abort(Event.REQUEUE, Cause.STOP, text))
        else:
            self._try_to_start(attempt)

    def _try_to_start(self, attempt: Attempt) -> None:
        try:
            self._start(attempt)
        except OSError as error:
            self._not_started(attempt, error)
        except MemoryError:
            lack = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self._not_started(attempt, lack)
        except Exception as error:  # the others start all the same
            log.exception("a start failed: %s", fields(msg_id=attempt.msg_id))
            why = self._parts.failed_starts.fault(attempt.msg_id, error)
            self._give_back(attempt, why)

    def _start(self, attempt: Attempt) -> None:
        worker = attempt.claim.worker
        if worker is not None:
            self._parts.launcher.hand_over(attempt, worker)
        else:
            self._parts.launcher.spawn(attempt, self._script_exited)
            self._parts.file.started()
        self._parts.failed_starts.forget(attempt.msg_id)
        self.owner.attempts.start([attempt])

    def _not_started(self, attempt: Attempt, error: OSError) -> None:
        why = abort.why_not_started(self.owner.script, attempt.message, error)
        if why.cause is Cause.FOLDER:
            why = self._parts.failed_starts.refuse(attempt.msg_id, why.cause, why.text)
        log.warning(
            "a script could not be started: %s",
            fields(msg_id=attempt.msg_id, reason=why.text),
        )
        self._parts.file.not_started(why.cause, why.text, self.owner.spool.clock())
        self._give_back(attempt, why)

    def _give_back(self, attempt: Attempt, why: Abort) -> None:
        self._claims.release(attempt.slot, attempt.claim.worker)
        self._parts.finisher.give_back(attempt, why)

    def _unread(self, attempt: Task) -> None:
        """Its worker has ended before it could read the message: this was no attempt."""
        if isinstance(attempt, Batch):
            self.batches.unread(attempt)
            return
        self._parts.time_limits.end(attempt.timed)
        if attempt.said.by is not None:
            why = abort.cancelled(attempt.said.by)
        else:
            text = "its worker ended before it had read the message"
            why = Abort(Event.REQUEUE, Cause.SPAWN, text)
        self._give_back(attempt, why)

    def _said(self, task: Task, text: bytes) -> None:
        """A long-lived worker has said a line of its message, or of its batch."""
        if isinstance(task, Batch):
            self.batches.said(task, text)
        else:
            self._parts.reports.take(task, text)

    # ---- ending

    def _finished(self, task: Task) -> None:
        """A long-lived worker is done with its message, or with its batch."""
        if isinstance(task, Batch):
            self.batches.finished(task)
        else:
            self._exited(task)

    def _script_exited(self, attempt: Attempt) -> None:
        """The script has ended and its pipe is read to the end."""
        assert attempt.script.termination is not None
        attempt.finish(attempt.script.termination)
        self._exited(attempt)

    def _exited(self, attempt: Attempt) -> None:
        """Decide when the script is done with it; end it when nothing of it is left.

        Of a worker that has exited `ready` may be heard, and then its end.
        """
        self._parts.time_limits.end(attempt.timed)
        if attempt.questions or attempt.outcome is not None:
            return
        decided = self._parts.finisher.decide(attempt)
        if attempt.script.termination is None:  # it lives on, ready for the next
            self._end(attempt)
            return
        # A child may have left the process group and dropped the lease, which is all
        # the fast check sees. Search /proc before this message runs again.
        thoroughly = decided.event in AGAIN
        end = functools.partial(self._end, attempt)
        self._parts.orphans.clear(attempt.script, attempt.slot, thoroughly, end)

    def _end(self, attempt: Attempt) -> None:
        """End it: nothing of it is left."""
        decided, worker = attempt.outcome, attempt.claim.worker
        assert decided is not None
        attempt.close_log(decided.event not in WELL)
        self._parts.finisher.fire(attempt, decided)
        if worker is None:
            attempt.script.hang_up()
            self._parts.slots.free(attempt.slot.number)
        elif attempt.script.termination is None:
            self.pool.release(worker)
        else:
            self.pool.forget(worker)

    # ---- cancelling

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
        attempt.cancel(who)
        self._parts.launcher.end(attempt)
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

    # ---- stopping

    async def stop(self) -> None:
        """Wait for scripts to end, then end them: grace, TERM, KILL; all have ended after."""
        grace = self.owner.settings.grace
        self.pool.renew()
        if await self._idle_within(grace):
            return
        self._cut_short()
        self._signal_all(TERM)
        if await self._idle_within(min(grace, AFTER_TERM)):
            return
        self._signal_all(KILL)
        await self._idle_within(AFTER_KILL)

    async def end_all(self, threads: Executor) -> None:
        """End scripts at once, TERM and then KILL, without waiting for a word of theirs:
        what they say cannot be kept. Processes that have left their groups are found by
        their leases, so that none runs beside its attempt after this one."""
        owner = self.owner
        self._cut_short()
        self._signal_all(TERM)
        prefix = owner.opened.lease_prefix
        grace = min(owner.settings.grace, AFTER_TERM)
        search = owner.loop.run_in_executor(
            threads, lease_holders.end_processes, prefix, (), grace, None, AFTER_KILL
        )
        for holder in await search:
            os.close(holder.pidfd)

    async def _idle_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._is_idle:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(LOOK)
        return True

    @property
    def _is_idle(self) -> bool:
        """Whether nothing runs, and nothing is on its way."""
        nothing = self.owner.attempts.none_left and self.pool.empty
        return nothing and not self._parts.tasks

    def _cut_short(self) -> None:
        """Mark attempts, so that those which end without a word from now on run again at
        the next start: the stop of the queue ends them."""
        for attempt in self.owner.attempts:
            attempt.cut_short = True
        for batch in self.owner.attempts.batches:
            batch.cut_short = True

    def _signal_all(self, sig: int) -> None:
        """Signal all scripts at work, and their groups."""
        for attempt in self.owner.attempts:
            if attempt.claim.batch_id is None:
                attempt.script.signal(sig)
        for batch in self.owner.attempts.batches:  # also one whose messages have ended
            if batch.script is not None:
                batch.script.signal(sig)
        self.pool.signal_all(sig)
