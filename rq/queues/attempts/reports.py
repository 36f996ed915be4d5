"""What scripts say while they run: progress is shown, `dup` is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from rq import pipe
from rq.errors import BadInput, RQError
from rq.pipe import Report, Verb
from rq.queues.attempts.attempt import Worker
from rq.queues.delivery import copies
from rq.queues.owner import Owner
from rq.queues.tasks import Tasks

PROGRESS_SECONDS = 0.2  # at most that often the file `status` of a running message


class Hearing:
    """The ears of a queue."""

    def __init__(
        self, owner: Owner, tasks: Tasks, on_answered: Callable[[Worker], None]
    ) -> None:
        self._owner = owner
        self._tasks = tasks
        self._on_answered = on_answered  # the last `dup` of one that has ended
        self._chatty: set[Worker] = set()
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, worker: Worker, report: Report) -> None:
        """Take a report of a worker."""
        if report.verb is Verb.DUP:
            self._dup(worker, report.text)
            return
        worker.said.hear(report)
        self.show(worker)

    def show(self, worker: Worker) -> None:
        """Write what it said last into the folder of its message, soon."""
        self._chatty.add(worker)
        if self._timer is None:
            self._timer = self._owner.loop.call_later(
                PROGRESS_SECONDS, self._write_progress
            )

    def forget(self, worker: Worker) -> None:
        """Its message has gone on."""
        self._chatty.discard(worker)

    def _write_progress(self) -> None:
        self._timer = None
        chatty, self._chatty = self._chatty, set()
        for worker in chatty:
            if self._owner.workers.get(worker.msg_id) is worker:
                with contextlib.suppress(OSError):
                    self._owner.spool.settle(worker.msg_id)
                self._owner.spool.write_progress(worker.msg_id, worker.said.text)

    def _dup(self, worker: Worker, text: str) -> None:
        try:
            asked = pipe.parse_dup(text)
        except BadInput as error:
            worker.script.tell(pipe.dup_reply(False, f"dup failed - {error}"))
            return
        worker.dups += 1
        self._tasks.spawn(self._answer_dup(worker, asked))

    async def _answer_dup(self, worker: Worker, asked: pipe.Dup) -> None:
        try:
            self._owner.spool.settle(worker.msg_id)  # others read its folder
            full_id = await copies.dup(self._owner, worker.message, asked)
            worker.script.tell(pipe.dup_reply(True, full_id))
        except (RQError, OSError) as error:
            worker.script.tell(pipe.dup_reply(False, str(error)))
        finally:
            worker.dups -= 1
            if worker.ending is not None and not worker.dups:
                self._on_answered(worker)
