"""The lines that scripts write while they run: progress is shown, `dup` is answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from rq.errors import BadInput, RQError
from rq.message.message import Message
from rq.queues.attempts.attempt import Attempt
from rq.queues.concurrency import Tasks
from rq.scripts import pipe
from rq.scripts.pipe import Verb
from rq.spool import Spool

QUESTIONS = 100  # of an attempt that wait for answers; then its script waits, too
PROGRESS_SECONDS = 0.2  # at most that often the file `status` of a running message


class Reports:
    """Takes the reports of a queue's attempts."""

    def __init__(
        self,
        spool: Spool,
        loop: asyncio.AbstractEventLoop,
        tasks: Tasks,
        dup: Callable[[Message, pipe.Dup, str | None], Awaitable[str]],
        on_answered: Callable[[Attempt], None],
    ) -> None:
        """`dup` copies a running message, and returns the full id of the copy;
        `on_answered`: the last question of a script that is done was answered."""
        self._spool = spool
        self._loop = loop
        self._tasks = tasks
        self._copy = dup
        self._on_answered = on_answered
        self._changed: set[Attempt] = set()  # progress that is not yet written
        self._timer: asyncio.TimerHandle | None = None

    def take(self, attempt: Attempt, line: bytes) -> None:
        """Take a line that a script said about its message."""
        attempt.hear()
        report = pipe.parse(line)
        if report is None:
            return
        if report.verb is Verb.DUP:
            self._dup(attempt, report.text)
            return
        attempt.said.hear(report)
        self.show(attempt)

    def show(self, attempt: Attempt) -> None:
        """Write what was said last into the folder of its message, soon."""
        self._changed.add(attempt)
        if self._timer is None:
            self._timer = self._loop.call_later(PROGRESS_SECONDS, self._write_progress)

    def _write_progress(self) -> None:
        self._timer = None
        changed, self._changed = self._changed, set()
        for attempt in changed:
            if not attempt.has_ended:
                with contextlib.suppress(OSError):
                    self._spool.settle(attempt.msg_id)
                self._spool.run_folders.write_progress(
                    attempt.msg_id, attempt.said.text
                )

    def _dup(self, attempt: Attempt, text: str) -> None:
        try:
            question = pipe.parse_dup(text)
        except BadInput as error:
            attempt.script.tell(pipe.dup_reply(False, f"dup failed - {error}"))
            return
        attempt.questions += 1
        if attempt.questions >= QUESTIONS:
            attempt.script.pause()
        self._tasks.spawn(self._answer_dup(attempt, question, attempt.result))

    async def _answer_dup(
        self, attempt: Attempt, question: pipe.Dup, result: str | None
    ) -> None:
        try:
            self._spool.settle(attempt.msg_id)  # others read its folder
            full_id = await self._copy(attempt.message, question, result)
            attempt.script.tell(pipe.dup_reply(True, full_id))
        except (RQError, OSError) as error:
            attempt.script.tell(pipe.dup_reply(False, str(error)))
        finally:
            attempt.questions -= 1
            attempt.script.resume()
            if not attempt.at_work and not attempt.questions:
                self._on_answered(attempt)
