"""A batch at work: what its process says about its messages, and how they end."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable

from rq.logs import fields
from rq.proc.slices import in_slices
from rq.queues.attempts import outcome
from rq.queues.attempts.attempt import Attempt, Batch
from rq.queues.attempts.outcome import AGAIN, WELL, Outcome
from rq.queues.attempts.registry import Attempts
from rq.queues.concurrency import Wakeup
from rq.queues.delivery import owed
from rq.queues.owner.settings import Settings
from rq.queues.runner import finish
from rq.queues.runner.parts import Parts
from rq.scripts import pipe
from rq.scripts.log import last_line
from rq.scripts.pipe import Report, Verb
from rq.scripts.time_limits import over_resources
from rq.spool import Spool, batch_dirs

ODDITIES = 20  # lines of one batch that could not be understood, in the log
_AGAIN = 2  # batches that may die before the end of others is looked at
_NO_DUP = "a batch is many messages, and dup copies one"

log = logging.getLogger(__name__)


class BatchRun:
    """Hears batches, and ends their messages."""

    def __init__(
        self,
        settings: Settings,
        spool: Spool,
        attempts: Attempts,
        wakeup: Wakeup,
        parts: Parts,
        free: Callable[[Batch, bool], None],
    ) -> None:
        """`free` gives back the slot or the worker of a batch, and hears whether it had
        begun."""
        self._settings = settings
        self._spool = spool
        self._attempts = attempts
        self._wakeup = wakeup
        self._parts = parts
        self._give_back_place = free
        self._well = False  # the last batch that ended did not die

    # ---- hearing

    def hear(self, batch: Batch, text: bytes) -> None:
        """Take a line that its process said."""
        if batch.timed is not None:
            batch.timed.hear()
        single = pipe.parse_single(text)
        if single is not None:
            self._hear_single(batch, text, *single)
            return
        report = pipe.parse(text)
        if report is None:
            return
        if report.verb is Verb.DUP and batch.script is not None:
            batch.script.tell(pipe.dup_reply(False, f"dup failed - {_NO_DUP}"))
        else:
            batch.said.hear(report)

    def _hear_single(self, batch: Batch, text: bytes, msg_id: str, said: bytes) -> None:
        attempt = batch.get(msg_id)
        report = pipe.parse(said)
        if attempt is None:
            self._odd(batch, text, "it is not in the batch")
        elif attempt.has_ended:
            self._odd(batch, text, "it has ended")
        elif attempt.said.word is not None:
            self._odd(batch, text, "how it ends was said before")
        elif report is None or report.verb is Verb.DUP:
            self._odd(batch, text, "say: msg ID WORD TEXT, and no dup")
        else:
            self._report(batch, attempt, report)

    def _report(self, batch: Batch, attempt: Attempt, report: Report) -> None:
        attempt.hear()
        attempt.said.hear(report)
        if attempt.said.word is None:
            self._parts.reports.show(attempt)
            return
        decided = self._decide(batch, attempt)
        # Do not requeue yet: the batch process may still touch this folder.
        if decided.event not in AGAIN:
            self._finish(batch, attempt, decided)

    def _odd(self, batch: Batch, text: bytes, why: str) -> None:
        batch.oddities += 1
        if batch.oddities <= ODDITIES:
            line = text.decode("utf-8", "replace")[:200]
            log.warning(
                "a batch said something of a message that RQ ignores: %s",
                fields(batch=batch.batch_id, line=line, reason=why),
            )

    # ---- ending

    def _decide(self, batch: Batch, attempt: Attempt) -> Outcome:
        """Return what becomes of a message; decided once."""
        if attempt.outcome is not None:
            return attempt.outcome
        message, ended = attempt.message, batch.termination
        decided = outcome.decide_in_batch(
            attempt.said,
            batch.said,
            ended.exit if ended else None,
            ended.signal if ended else None,
            message,
        )
        how = (ended.exit, ended.signal) if ended else (None, None)
        word = attempt.said.word or batch.said.word
        rule = self._settings.queue.retry
        decided = outcome.by_rule(decided, rule, word, how, message)
        if batch.cut_short and decided.cause.row.is_lost:
            decided = finish.CUT_SHORT
        return attempt.decide(owed.check_target(self._settings, decided))

    def _finish(self, batch: Batch, attempt: Attempt, decided: Outcome) -> None:
        self._part(batch, attempt.msg_id, decided)
        if attempt.at_work:
            batch.finish_message(attempt)
        batch.count_end(decided.event)
        self._parts.finisher.fire(attempt, decided)

    def _part(self, batch: Batch, msg_id: str, decided: Outcome) -> None:
        """Count for a message that its batch died. It goes round as it was once; when it
        dies again, in smaller batches: one message may kill the process. If then the
        batch before died too, the script is the likelier cause, and more and smaller
        starts would not help."""
        entry = self._spool.entry(msg_id)
        if not decided.cause.row.is_lost:
            entry.lost = 0
            return
        batch.lost += 1
        if entry.lost < _AGAIN or self._well:
            entry.lost += 1

    def script_exited(self, batch: Batch) -> None:
        """Its process has ended, and its pipe is read to the end."""
        assert batch.work.script.termination is not None
        batch.finish(batch.work.script.termination)
        self.finished(batch)

    def finished(self, batch: Batch) -> None:
        """Its process has ended, or is ready for another batch: of a worker both may be
        heard, one after the other."""
        if batch.is_ending:
            return
        batch.is_ending = True
        self._parts.time_limits.end(batch.timed)
        how = batch.termination
        if how is not None and batch.said.over is None:
            took = time.monotonic() - batch.began
            batch.said.over = over_resources(
                batch.limits, how, took, batch.work.script.oom_kills
            )
        for attempt in batch:
            batch.finish_message(attempt)
        events = {self._decide(batch, attempt).event for attempt in batch}
        if batch.work.script.termination is None:  # it lives on
            self._end_all(batch)
            return
        # A child may have left the process group and dropped the lease, which is all
        # the fast check sees. Search /proc before any of them runs again.
        thoroughly = not events | set(batch.ended) <= WELL
        end = functools.partial(self._end_all, batch)
        self._parts.orphans.clear(batch.work.script, batch.slot, thoroughly, end)

    def _end_all(self, batch: Batch) -> None:
        self._parts.tasks.spawn(self._end_rest(batch))

    async def _end_rest(self, batch: Batch) -> None:
        """End the messages whose end was not said, then the batch."""

        def end(attempt: Attempt) -> None:
            self._finish(batch, attempt, self._decide(batch, attempt))

        await in_slices(list(batch), end)
        self._well = not batch.lost
        script = batch.work.script
        how, took = batch.termination, time.monotonic() - batch.began
        assert how is not None
        batch.work.log.end(last_line(script.pid, how.exit, how.signal, took), True)
        if batch.worker is None:
            script.hang_up()
        log.info(
            "a batch has ended: %s",
            fields(batch=batch.batch_id, **{str(k): n for k, n in batch.ended.items()}),
        )
        self._free(batch, True)
        await self._wakeup.committed()  # the ends are durable before the directory goes
        self._remove(batch)

    def forget(self, batch: Batch) -> None:
        """Forget a batch that did not start."""
        self._free(batch, False)
        self._remove(batch)

    def _free(self, batch: Batch, has_begun: bool) -> None:
        self._parts.tokens.end(batch.batch_id)
        self._give_back_place(batch, has_begun)
        self._attempts.forget_batch(batch)
        self._wakeup.ask()

    def _remove(self, batch: Batch) -> None:
        try:
            batch_dirs.end(self._spool, batch.batch_id)
        except OSError as error:
            log.error(
                "the directory of a batch stays until the next start: %s",
                fields(batch=batch.batch_id, reason=error.strerror or error),
            )
        self._wakeup.ask()
