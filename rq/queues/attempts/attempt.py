"""An attempt: a script at work on a message, be it started for it or there before.

It joins a script with what is heard of it; what that means is for the runner.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rq import pipe
from rq.message import Message
from rq.pipe import Report
from rq.proc.spawn import Ending
from rq.queues.attempts.outcome import Said
from rq.scripts import log as stdio
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.script import Script
from rq.scripts.slots import Slot


class Attempt:
    """A script at work on a message."""

    def __init__(
        self,
        message: Message,
        slot: Slot,
        log: StdioLog | PassedLog,
        on_report: Callable[[Attempt, Report], None],
    ) -> None:
        self.message = message
        self.slot = slot
        self.log = log
        self.said = Said()
        self.began = time.monotonic()
        self.began_at = time.time()
        self.phase = "starting"
        self.script: Script  # from its start on
        self.ending: Ending | None = None
        self.dups = 0  # questions that are not yet answered
        self.cause: str | None = None  # why RQ itself is ending it
        self.batch: Said | None = None  # what the batch that it is in has said
        # Of a script whose exit status may say how it ended: the last line that it wrote.
        self.last_printed: Callable[[], str] | None = None
        self._on_report = on_report

    @property
    def msg_id(self) -> str:
        return self.message.msg_id

    @property
    def text(self) -> str:
        """What was said last, for people: of its message, else of the whole batch."""
        return self.said.text or (self.batch.text if self.batch else "")

    @property
    def pid(self) -> int:
        return self.script.pid

    @property
    def run_seconds(self) -> float:
        return time.monotonic() - self.began

    def hear(self, text: bytes) -> None:
        """Take a line that the script said."""
        self.phase = "running"
        report = pipe.parse(text)
        if report is not None:
            self._on_report(self, report)

    def end(self, ending: Ending) -> None:
        """The attempt is over: the script has exited, or is ready for the next."""
        self.phase = "finishing"
        self.ending = ending

    def close_log(self, wanted: bool) -> None:
        """Write the last line of its log; a log is `wanted` though nothing was said."""
        if self.ending is not None:
            exit_status, sig = self.ending.exit, self.ending.signal
            last = stdio.last_line(self.pid, exit_status, sig, self.run_seconds)
            self.log.end(last, wanted)
