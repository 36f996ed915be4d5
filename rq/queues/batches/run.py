"""A batch at work: what its process says of its messages, and how they end."""

from __future__ import annotations

import functools
import logging
import time

from rq import pipe
from rq.causes import Cause
from rq.logs import fields
from rq.pipe import Report, Verb
from rq.queues.attempts import finish, outcome
from rq.queues.attempts.attempt import Worker
from rq.queues.attempts.outcome import Outcome
from rq.queues.attempts.reports import Hearing
from rq.queues.attempts.sweep import Sweeper
from rq.queues.batches.batch import Batch
from rq.queues.delivery import owed
from rq.queues.owner import Owner
from rq.queues.tasks import Tasks, in_slices
from rq.scripts.log import last_line
from rq.scripts.slots import Slots
from rq.spool import batch_dirs

ODDITIES = 20  # lines of one batch that could not be understood, in the log
_LOST = frozenset({Cause.BATCH, Cause.CRASH_LIMIT})
_NO_DUP = "a batch is many messages, and dup copies one"

log = logging.getLogger(__name__)


class Together:
    """Hears batches, and ends their messages."""

    def __init__(
        self,
        owner: Owner,
        slots: Slots,
        hearing: Hearing,
        sweeper: Sweeper,
        tasks: Tasks,
    ) -> None:
        self.owner = owner
        self._slots = slots
        self._hearing = hearing
        self._sweeper = sweeper
        self._tasks = tasks
        self._well = False  # the last batch that ended did not die

    # ---- hearing

    def hear(self, made: Batch, text: bytes) -> None:
        """Take a line that its process said."""
        single = pipe.parse_single(text)
        if single is not None:
            self._hear_single(made, text, *single)
            return
        report = pipe.parse(text)
        if report is None:
            return
        if report.verb is Verb.DUP and made.script is not None:
            made.script.tell(pipe.dup_reply(False, f"dup failed - {_NO_DUP}"))
        else:
            made.said.hear(report)

    def _hear_single(self, made: Batch, text: bytes, msg_id: str, said: bytes) -> None:
        worker = made.workers.get(msg_id)
        report = pipe.parse(said)
        if worker is None:
            ended = msg_id in made
            self._odd(made, text, "it has ended" if ended else "it is not in the batch")
        elif worker.said.word is not None:
            self._odd(made, text, "how it ends was said before")
        elif report is None or report.verb is Verb.DUP:
            self._odd(made, text, "say: msg ID WORD TEXT, and no dup")
        else:
            self._report(made, worker, report)

    def _report(self, made: Batch, worker: Worker, report: Report) -> None:
        worker.said.hear(report)
        if worker.said.word is None:
            self._hearing.show(worker)
            return
        decided = self._decide(made, worker)
        # One that runs again may not while this process lives: it ends with the batch.
        if decided.event not in finish.AGAIN:
            self._finish(made, worker, decided)

    def _odd(self, made: Batch, text: bytes, why: str) -> None:
        made.oddities += 1
        if made.oddities <= ODDITIES:
            shown = text.decode("utf-8", "replace")[:200]
            log.warning(
                "a batch said something of a message that RQ ignores: %s",
                fields(batch=made.batch_id, line=shown, reason=why),
            )

    # ---- ending

    def _decide(self, made: Batch, worker: Worker) -> Outcome:
        message, ended = worker.message, made.script.ending if made.script else None
        decided = outcome.decide_in_batch(
            worker.said,
            made.said,
            ended.exit if ended else None,
            ended.signal if ended else None,
            message.count,
            message.max_count,
        )
        if made.stopped and decided.cause in _LOST:
            return finish.CUT_SHORT
        return owed.check_target(self.owner, decided)

    def _finish(self, made: Batch, worker: Worker, decided: Outcome) -> None:
        self._part(made, worker.msg_id, decided)
        claim = made.end_of(worker, decided.event)
        del self.owner.workers[worker.msg_id]
        self._hearing.forget(worker)
        finish.fire(self.owner, worker, claim, decided)
        self.owner.wake()

    def _part(self, made: Batch, msg_id: str, decided: Outcome) -> None:
        """Let a message whose batch died go on with fewer others: one of them may have
        killed it. When the batch before it died, too, it is rather the script, and
        ever more starts of that would help nobody."""
        entry = self.owner.spool.entries[msg_id]
        if decided.cause not in _LOST:
            entry.lost = 0
            return
        made.lost += 1
        if entry.lost == 0 or self._well:
            entry.lost += 1

    def script_ended(self, made: Batch) -> None:
        """Its process has ended, and its pipe is read to the end."""
        assert made.script is not None
        events = {self._decide(made, one).event for one in made} | set(made.ended)
        # Whoever hid from the two cheap questions must not meet the next attempt.
        thoroughly = not events <= finish.WELL
        end = functools.partial(self._end_all, made)
        self._sweeper.clear(made.script, made.slot, thoroughly, end)

    def _end_all(self, made: Batch) -> None:
        self._tasks.spawn(self._end_rest(made))

    async def _end_rest(self, made: Batch) -> None:
        """End all whose end was not said, and the batch."""

        def end(worker: Worker) -> None:
            self._finish(made, worker, self._decide(made, worker))

        await in_slices(list(made), end)
        self._well = not made.lost
        assert made.script is not None
        assert made.script.ending is not None
        how, took = made.script.ending, time.monotonic() - made.began
        made.log.end(last_line(made.script.pid, how.exit, how.signal, took), True)
        made.script.hang_up()
        log.info(
            "a batch has ended: %s",
            fields(batch=made.batch_id, **{str(k): n for k, n in made.ended.items()}),
        )
        self._free(made)
        await self.owner.committed()  # what is said of them may not be lost with it
        self._remove(made)

    def forget(self, made: Batch) -> None:
        """A batch has not started; nothing of it is left."""
        self._free(made)
        self._remove(made)

    def _free(self, made: Batch) -> None:
        self._slots.free(made.slot.number)
        self.owner.batches.remove(made)
        self.owner.wake()

    def _remove(self, made: Batch) -> None:
        try:
            batch_dirs.end(self.owner.spool, made.batch_id)
        except OSError as error:
            log.error(
                "the directory of a batch stays until the next start: %s",
                fields(batch=made.batch_id, reason=error.strerror or error),
            )
        self.owner.wake()
