"""Batches: their messages are claimed in one group of the journal, and one process is
started for all of them."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping

from rq import limits
from rq.causes import Cause
from rq.config.settings import PERSISTENT
from rq.errors import BadMessage, NoSuchMessage, TooLate, Unread
from rq.limits import Over
from rq.logs import fields
from rq.queues.attempts.attempt import Attempt, Claim
from rq.queues.attempts.batch import Batch
from rq.queues.concurrency.tasks import in_slices
from rq.queues.owner.owner import Owner
from rq.queues.runner import abort, batch_file, claims
from rq.queues.runner.abort import Abort
from rq.queues.runner.batch_run import BatchRun
from rq.queues.runner.parts import Parts
from rq.queues.runner.pool import Pool
from rq.scripts import environment
from rq.scripts.log import StdioLog
from rq.scripts.script import Script
from rq.scripts.slots import Slot
from rq.scripts.time_limits import Timed
from rq.spool import batch_dirs, lost_attempts
from rq.states import Event

LOOKS = 200  # due messages that are put into batches in one turn

log = logging.getLogger(__name__)


class Batches:
    """The batches of one queue."""

    def __init__(
        self,
        owner: Owner,
        parts: Parts,
        pool: Pool,
    ) -> None:
        self.owner = owner
        self._parts = parts
        self._pool = pool
        self._file = parts.file
        self._run = BatchRun(
            owner.settings,
            owner.spool,
            owner.attempts,
            owner.wakeup,
            parts,
            self._free,
        )
        self._claimed: list[Batch] = []

    # ---- claiming

    def claim_due(self) -> float | None:
        """Claim the batches that may start and have a slot; return when to look again."""
        owner = self.owner
        now = owner.spool.clock()
        while owner.slots_free > 0 and owner.admission.may_start:
            not_before = self._file.not_before(now, self._pool.free > 0)
            if not_before is not None:
                return not_before
            later, more = self._gather(now)
            ids, starts = owner.backlog.gathering.next_batch(now)
            lacks, again = self._lacks_worker(bool(ids) or starts is not None, now)
            if ids and lacks:
                return again
            if ids:
                self._claim(ids, now)
            elif more:
                return now
            else:
                ahead = (later, starts, again)
                moments = [moment for moment in ahead if moment is not None]
                if not moments:
                    self._file.is_back()  # no message waits for it: no error to show
                return min(moments, default=None)
            if owner.spool.group_full:
                return now
        return None

    def _lacks_worker(self, wanted: bool, now: float) -> tuple[bool, float | None]:
        """Return whether no long-lived worker is free where one must be, and when to look
        again; one is started as soon as messages gather, to be ready for them."""
        if not self._is_persistent or self._pool.has_free():
            return False, None
        return True, self._pool.grow(now) if wanted else None

    @property
    def _is_persistent(self) -> bool:
        return self.owner.config.worker == PERSISTENT

    def _gather(self, now: float) -> tuple[float | None, bool]:
        """Put due messages into batches; return when the next is due, and whether more are
        due now."""
        for _ in range(LOOKS):
            msg_id, later = self.owner.backlog.next_of_batches(now)
            if msg_id is None:
                return later, False
            try:
                self.owner.backlog.gather(msg_id)
            except Unread as error:
                self.owner.backlog.put_back(msg_id)
                self._file.lacks(error, now)
                return self._file.not_before(now, False), False
        return None, True

    def _claim(self, ids: list[str], now: float) -> None:
        try:
            worker = self._pool.take() if self._is_persistent else None
            slot = worker.slot if worker else self._parts.slots.take()
        except OSError as error:
            self._file.lacks(error, now)
            return
        # The attempt is part of the id: the directory of the last batch with the same
        # first message may still be there.
        batch_id = f"{ids[0]}.{self.owner.spool.entry(ids[0]).attempt + 1}"
        attempts = [
            attempt
            for msg_id in ids
            if (attempt := self._claim_one(msg_id, batch_id, slot, now)) is not None
        ]
        batch = Batch(batch_id, attempts, slot, worker)
        if not attempts:
            self._close_slot(batch)
            self._free(batch, False)
            return
        self.owner.attempts.add_batch(batch)
        self._claimed.append(batch)

    def _claim_one(
        self, msg_id: str, batch_id: str, slot: Slot, now: float
    ) -> Attempt | None:
        owner = self.owner
        entry = owner.spool.entry(msg_id)
        seq, wait_us = entry.last_told, entry.waited_us(now)
        owner.backlog.remove(msg_id)
        try:
            message = owner.spool.claim(msg_id, slot.number, batch=batch_id)
        except Unread as error:
            owner.backlog.add(msg_id)
            self._file.lacks(error, now)
            return None
        except TooLate as error:
            claims.fail_late(owner, msg_id, error)
            return None
        except (BadMessage, NoSuchMessage) as error:
            lost_attempts.fail_malformed(owner.spool, msg_id, str(error))
            return None
        attempt = Attempt(
            Claim(
                message=message, slot=slot, seq=seq, wait_us=wait_us, batch_id=batch_id
            )
        )
        owner.attempts.claim(attempt)
        return attempt

    def any_after(self, seq: int) -> bool:
        """Whether a claimed batch has a message accepted by a later event than `seq`."""
        return any(batch.seq > seq for batch in self._claimed)

    # ---- starting

    def launch(self, seq: int) -> None:
        """Start the batches whose messages were all accepted no later than `seq`."""
        ready = [batch for batch in self._claimed if batch.seq <= seq]
        for batch in ready:
            self._claimed.remove(batch)
            self._parts.tasks.spawn(self._launch(batch))

    async def _launch(self, batch: Batch) -> None:
        try:
            await self._prepare(batch)
        except OSError as error:
            self._not_started(batch, error)
        except Exception as error:
            log.exception(
                "a batch could not be started: %s", fields(batch=batch.batch_id)
            )
            if batch.script is None:
                self._hold_back(batch, error)

    def _hold_back(self, batch: Batch, error: Exception) -> None:
        """Give back the messages of a batch whose start failed by a fault of RQ."""
        why = Abort(Event.REQUEUE, Cause.SPAWN, abort.unforeseen(error))
        self._file.not_started(why.cause, why.text, self.owner.spool.clock())
        self._give_back(batch, why)

    async def _prepare(self, batch: Batch) -> None:
        """Make the folders of all its messages; then start."""
        spool = self.owner.spool
        ids = self.owner.identity.now.ids
        path, directory = batch_dirs.begin(spool, batch.batch_id)
        output = self._parts.launcher.log(path, directory)
        try:
            await self._lend(batch)
            await in_slices(list(batch), functools.partial(self._enter, batch))
            if self.owner.admission.stopping:
                text = "the queue stopped before its batch had started"
                self._give_back(batch, Abort(Event.REQUEUE, Cause.STOP, text))
            elif len(batch):
                self._parts.launcher.check_still(ids)
                described = self._described(batch)
                batch_dirs.describe(spool, batch.batch_id, described, ids)
                self._start(batch, f"{spool.queue.path}/{path}", output)
            else:
                self._give_back(batch, Abort(Event.REQUEUE, Cause.SPAWN, ""))
        finally:
            output.close()

    def _enter(self, batch: Batch, attempt: Attempt) -> None:
        spool, msg_id, message = self.owner.spool, attempt.msg_id, attempt.message
        try:
            batch_dirs.share_log(
                spool,
                batch.batch_id,
                msg_id,
                message.attempt,
                self.owner.identity.now.ids,
            )
            attempt.stamp = spool.run_folders.stamp(msg_id)
        except OSError as error:
            self._leave_out(batch, attempt, error)

    async def _lend(self, batch: Batch) -> None:
        """Let another user read the attachments of its messages, if it runs as one."""
        for attempt in list(batch):
            if self._parts.launcher.lends(attempt.message):
                try:
                    await self._parts.launcher.lend(attempt.message)
                except OSError as error:
                    self._leave_out(batch, attempt, error)

    def _leave_out(self, batch: Batch, attempt: Attempt, error: OSError) -> None:
        """Go on without a message whose folder cannot be used; raise an error that says
        nothing of one folder."""
        msg_id = attempt.msg_id
        why = abort.why_not_started(self.owner.script, attempt.message, error)
        if why.cause is Cause.FOLDER:
            why = self._parts.failed_starts.refuse(msg_id, why.cause, why.text)
        if why.event is not Event.FAIL and not why.wait:
            raise error
        log.error(
            "a message cannot take part in its batch, which goes on without it: %s",
            fields(msg_id=msg_id, batch=batch.batch_id, reason=why.text),
        )
        batch.drop(attempt)
        self._parts.finisher.give_back(attempt, why)

    def _described(self, batch: Batch) -> bytes:
        owner = self.owner
        return batch_file.content(
            owner.main,
            owner.name,
            str(owner.queue.path),
            batch.batch_id,
            [attempt.message for attempt in batch],
        )

    def _start(self, batch: Batch, directory: str, output: StdioLog) -> None:
        owner = self.owner
        batch.limits = owner.settings.limits
        for attempt in batch:
            batch.limits = limits.of(batch.limits, attempt.message.limits)
        token = self._parts.launcher.token(batch.batch_id)
        values = {**environment.of_batch(batch.batch_id, directory), **token}
        if batch.worker is None:
            self._start_script(batch, values, output)
        else:
            self._parts.launcher.hand_over_batch(batch, values, output)
        self._limit(batch)
        owner.attempts.start(batch)
        for attempt in batch:
            self._parts.failed_starts.forget(attempt.msg_id)
        self._file.started()
        log.info(
            "a batch starts: %s",
            fields(
                batch=batch.batch_id, messages=len(batch), pid=batch.work.script.pid
            ),
        )
        if batch.said.by is not None:  # cancelled while its folders were made
            self._terminate(batch)

    def _start_script(
        self, batch: Batch, values: Mapping[str, str], output: StdioLog
    ) -> None:
        plan = self._parts.launcher.program().plan(
            batch.slot,
            values,
            directory=output.directory,
            output=output.fd,
            limits=batch.limits,
        )
        script = Script(
            plan,
            self.owner.loop,
            functools.partial(self._run.hear, batch),
            functools.partial(self._run.script_exited, batch),
        )
        output.started(script.pid)
        os.close(batch.slot.fd)
        batch.start(script, output)

    def _limit(self, batch: Batch) -> None:
        """Look after the time of its script."""
        output, most = batch.work.log, batch.limits.log_bytes
        output.keep(most)
        if batch.limits.of_time:
            kill = functools.partial(self._over, batch)
            timed = Timed(
                limits=batch.limits,
                kill=kill,
                printed=output.size,
                thin=None if most is None else output.thin,
            )
            batch.timed = self._parts.time_limits.begin(timed)

    def _over(self, batch: Batch, over: Over) -> None:
        batch.said.over = over
        log.warning("%s: %s", over.text, fields(batch=batch.batch_id))
        self._terminate(batch)

    def _not_started(self, batch: Batch, error: OSError) -> None:
        first = next(iter(batch)).message
        why = abort.why_not_started(self.owner.script, first, error)
        if why.event is Event.FAIL:  # no single message is to blame
            why = Abort(Event.REQUEUE, Cause.SPAWN, why.text)
        log.warning(
            "a batch could not be started: %s",
            fields(batch=batch.batch_id, reason=why.text),
        )
        self._file.not_started(why.cause, why.text, self.owner.spool.clock())
        self._give_back(batch, why)

    def _give_back(self, batch: Batch, why: Abort) -> None:
        """End attempts that did not begin."""
        if batch.said.by is not None:  # cancelled while its folders were made
            why = abort.cancelled(batch.said.by)
        self._close_slot(batch)
        for attempt in batch:
            self._parts.finisher.give_back(attempt, why)
        self._run.forget(batch)

    # ---- what a long-lived worker does with its batch

    def said(self, batch: Batch, text: bytes) -> None:
        """Its worker has said a line."""
        self._run.hear(batch, text)

    def finished(self, batch: Batch) -> None:
        """Its worker is ready for another batch, or has ended."""
        self._run.finished(batch)

    def unread(self, batch: Batch) -> None:
        """Its worker has ended before it could read of the batch: this was no attempt."""
        self._parts.time_limits.end(batch.timed)
        for attempt in batch:
            batch.finish_message(attempt)
        text = "its worker ended before it had read of the batch"
        self._give_back(batch, Abort(Event.REQUEUE, Cause.SPAWN, text))

    def _free(self, batch: Batch, has_begun: bool) -> None:
        """Give back the slot, or the worker, of a batch."""
        if batch.output is not None:
            batch.output.close()
        worker = batch.worker
        if worker is None:
            self._parts.slots.free(batch.slot.number)
        elif has_begun and worker.script.termination is not None:
            forget = functools.partial(self._pool.forget, worker)
            self._parts.orphans.clear(worker.script, worker.slot, False, forget)
        else:
            self._pool.release(worker)  # one that has ended is forgotten by the pool

    @staticmethod
    def _close_slot(batch: Batch) -> None:
        if batch.worker is None:  # else its worker has the lock
            os.close(batch.slot.fd)

    # ---- cancelling

    def cancel(self, batch: Batch, who: str) -> None:
        """End a batch: its messages that have not ended go to err."""
        batch.cancel(who)
        if batch.script is not None:
            self._terminate(batch)

    def _terminate(self, batch: Batch) -> None:
        grace = batch.limits.grace
        if grace is None:
            grace = self.owner.settings.grace
        if batch.worker is not None:
            batch.worker.retire(grace)
        batch.work.script.terminate(grace, batch=batch.batch_id)
