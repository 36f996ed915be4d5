"""Batches: one process is started for all of their messages, or a long-lived worker is
handed them."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterable, Mapping

import orjson

from rq.config.settings import RootConfig
from rq.layout import folder
from rq.logs import fields
from rq.message import limits
from rq.message.causes import Cause
from rq.message.limits import Over
from rq.message.message import Message
from rq.proc.slices import in_slices
from rq.queues.attempts.attempt import Attempt, Batch
from rq.queues.owner.owner import Owner
from rq.queues.runner import abort
from rq.queues.runner.abort import Abort
from rq.queues.runner.batch_claims import BatchClaims
from rq.queues.runner.batch_run import BatchRun
from rq.queues.runner.parts import Parts
from rq.queues.runner.pool import Pool
from rq.scripts import environment
from rq.scripts.log import StdioLog
from rq.scripts.script import Script
from rq.scripts.time_limits import Timed
from rq.spool import batch_dirs
from rq.words.states import Event, State

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
        self._claims = BatchClaims(
            owner, parts, pool, self._claimed.append, self._unused
        )

    def claim_due(self) -> float | None:
        """Claim the batches that may start and have a slot; return when to look again."""
        return self._claims.claim_due()

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
        """Allow another user to read the attachments of its messages, if it runs as
        one."""
        for attempt in list(batch):
            if self._parts.launcher.lends(attempt.message):
                try:
                    await self._parts.launcher.lend(attempt.message)
                    self._parts.launcher.results.pop(attempt.msg_id, None)
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
        return batch_json(
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

    def _unused(self, batch: Batch) -> None:
        """Give back the slot, or the worker, of a batch of which no message is left."""
        self._close_slot(batch)
        self._free(batch, False)

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


def batch_json(
    config: RootConfig,
    queue: str,
    path: str,
    batch_id: str,
    messages: Iterable[Message],
) -> bytes:
    """Return `batch.json`, which the script reads: a line of JSON for each message, with
    where its folder lies and its whole id, then its own fields."""
    lines = [
        orjson.dumps(
            {
                "msg_id": message.msg_id,
                "dir": f"{path}/{folder(State.RUN, message.msg_id)}",
                "full_msg_id": config.full_id(queue, message.msg_id),
                "attempt": message.attempt,
                **message.to_json(),
            }
        )
        for message in messages
    ]
    head = orjson.dumps({"batch_id": batch_id, "queue": queue, "count": len(lines)})
    return head[:-1] + b',"messages":[\n' + b",\n".join(lines) + b"\n]}\n"
