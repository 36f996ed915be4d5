"""What scripts say while they run: progress is shown, `dup` is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from rq import pipe
from rq.errors import BadInput, RQError
from rq.pipe import Report, Verb
from rq.queues.attempts.attempt import Attempt
from rq.queues.delivery import copies
from rq.queues.owner import Owner
from rq.queues.tasks import Tasks

PROGRESS_SECONDS = 0.2  # at most that often the file `status` of a running message


class Reports:
    """Takes the reports of a queue's attempts."""

    def __init__(
        self, owner: Owner, tasks: Tasks, on_answered: Callable[[Attempt], None]
    ) -> None:
        self._owner = owner
        self._tasks = tasks
        self._on_answered = on_answered  # the last `dup` of one that has ended
        self._chatty: set[Attempt] = set()
        self._timer: asyncio.TimerHandle | None = None

    def hear(self, attempt: Attempt, report: Report) -> None:
        """Take a report of an attempt."""
        if report.verb is Verb.DUP:
            self._dup(attempt, report.text)
            return
        attempt.said.hear(report)
        self.show(attempt)

    def show(self, attempt: Attempt) -> None:
        """Write what it said last into the folder of its message, soon."""
        self._chatty.add(attempt)
        if self._timer is None:
            self._timer = self._owner.loop.call_later(
                PROGRESS_SECONDS, self._write_progress
            )

    def forget(self, attempt: Attempt) -> None:
        """Its message has gone on."""
        self._chatty.discard(attempt)

    def _write_progress(self) -> None:
        self._timer = None
        chatty, self._chatty = self._chatty, set()
        for attempt in chatty:
            if self._owner.attempts.of(attempt.msg_id) is attempt:
                with contextlib.suppress(OSError):
                    self._owner.spool.settle(attempt.msg_id)
                self._owner.spool.write_progress(attempt.msg_id, attempt.said.text)

    def _dup(self, attempt: Attempt, text: str) -> None:
        try:
            asked = pipe.parse_dup(text)
        except BadInput as error:
            attempt.script.tell(pipe.dup_reply(False, f"dup failed - {error}"))
            return
        attempt.dups += 1
        self._tasks.spawn(self._answer_dup(attempt, asked))

    async def _answer_dup(self, attempt: Attempt, asked: pipe.Dup) -> None:
        try:
            self._owner.spool.settle(attempt.msg_id)  # others read its folder
            full_id = await copies.dup(self._owner, attempt.message, asked)
            attempt.script.tell(pipe.dup_reply(True, full_id))
        except (RQError, OSError) as error:
            attempt.script.tell(pipe.dup_reply(False, str(error)))
        finally:
            attempt.dups -= 1
            if attempt.ending is not None and not attempt.dups:
                self._on_answered(attempt)
