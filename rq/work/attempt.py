"""A leased message at work, from the lease until its end is handed in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum

from rq.errors import BadInput
from rq.message.limits import NONE, Over
from rq.proc.spawn import Termination
from rq.scripts import pipe
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.pipe import Said, Verb
from rq.scripts.script import Script
from rq.scripts.time_limits import Timed, over_resources
from rq.words.nesting import Json
from rq.work.answers import Lease
from rq.work.folder import Folder
from rq.work.holding import Result, Term
from rq.work.log_sender import LogSender

MOST_DUPS = 100
COPIED = "it is made when the attempt ends"  # what a script hears of its copy
_RELAYED = "`relayed` is said by the queue relay alone, and not under a lease"


class Why(StrEnum):
    """Why an agent ends a script."""

    CANCELLED = "cancelled"  # somebody wants it to end; its queue decides what follows
    LOST = "lost"  # the message is no longer ours
    LINK = "link"  # its lease is about to run out, and nobody renews it
    STOP = "stop"  # the agent ends


class Attempt:
    """A message that this agent holds a lease of."""

    def __init__(self, lease: Lease, sent: float, folder: Folder, log: LogSender):
        self.lease = lease
        self.token = lease.token
        self.msg_id = lease.msg_id
        self.term = Term(sent, lease.seconds)
        self.folder = folder
        self.sender = log
        self.said = Said()
        self.dups: list[dict[str, Json]] = []
        self.progress = ""  # the last progress that was sent
        self.why: Why | None = None  # it is ended before its own end
        self.refused = False  # its worker has ended without reading it
        self.printed = ""  # the last line of its output
        self.termination: Termination | None = None
        self.end: dict[str, Json] = {}  # how it ended, for the queue's host
        self.closed_at: float | None = None
        self.is_kept = False  # its end, on disk
        self.is_laid_out = False
        self.limits = NONE
        self.timed: Timed | None = None  # its script, if its time is limited
        self.exited = asyncio.Event()  # its script is done with it
        self.stopped = asyncio.Event()  # it is to end before its own end
        self._began = 0.0
        self._script: Script | None = None
        self._before_stop: Callable[[], None] | None = None

    # ---- its script

    @property
    def script(self) -> Script | None:
        """The script at work on it; None before its start."""
        return self._script

    @property
    def at_work(self) -> bool:
        """Whether its script works on it."""
        return self._script is not None and self.termination is None

    @property
    def run_seconds(self) -> float:
        return time.monotonic() - self._began

    def begin(
        self,
        script: Script,
        log: StdioLog | PassedLog,
        before_stop: Callable[[], None] | None = None,
    ) -> None:
        """Go on with the script that works on it, and writes to a log. `before_stop` is
        called before the script is told to end."""
        self._script = script
        self._before_stop = before_stop
        self._began = time.monotonic()
        self.sender.begin(log.output_at)

    def lay_out(self) -> None:
        """Make its folder; OSError."""
        self.folder.lay_out(self.lease)
        self.is_laid_out = True

    def open_job(self) -> int:
        """Return a descriptor of the script's directory, made now if it was not needed."""
        if not self.is_laid_out:
            self.lay_out()
        return self.folder.open_job()

    def finish(self, termination: Termination) -> None:
        """Its script has exited, or is ready for the next message."""
        self.termination = termination

    def hear(self, line: bytes) -> None:
        """Take a line that its script has said."""
        if self.timed is not None:
            self.timed.hear()
        report = pipe.parse(line)
        if report is None:
            return
        if report.verb is Verb.DUP:
            self._dup(report.text)
            return
        self.said.hear(report)
        if self.said.word is Verb.RELAYED:
            self.said.word, self.said.unreadable = Verb.ERR, _RELAYED

    def _dup(self, text: str) -> None:
        assert self._script is not None
        try:
            copy = pipe.parse_dup(text)
            if len(self.dups) >= MOST_DUPS:
                raise BadInput(f"an attempt makes at most {MOST_DUPS} copies")
        except BadInput as error:
            self._script.tell(pipe.dup_reply(False, f"dup failed - {error}"))
            return
        self.dups.append({"delay": copy.delay, "dest": copy.dest})
        self._script.tell(pipe.dup_reply(True, COPIED))

    # ---- its end

    def take(self, result: Result, grace: float = 0.0) -> None:
        """Take what became of a word about it: its lease goes on, or is over, or somebody
        wants it to end. `grace`: seconds from TERM to KILL."""
        if result.is_lost:
            self.stop(Why.LOST, grace)
        elif result.cancel:
            self.stop(Why.CANCELLED, grace)
        if result.ok and result.seconds:
            self.term = Term(result.sent, result.seconds)

    def stop(self, why: Why, grace: float) -> None:
        """Let its script end: TERM, and KILL after `grace` seconds. The first reason
        counts, unless the message is lost."""
        if self.why is why or (self.why is not None and why is Why.CANCELLED):
            return
        if self.why is None or why is Why.LOST:
            self.why = why
        self.stopped.set()
        self._terminate(max(0.0, grace))

    def exceed(self, over: Over, grace: float) -> None:
        """Let its script end for a limit, and tell so."""
        self.said.over = over
        self._terminate(grace)

    def _terminate(self, grace: float) -> None:
        if self._script is not None and self._script.termination is None:
            if self._before_stop is not None:
                self._before_stop()
            self._script.terminate(grace, msg_id=self.msg_id)

    def close_log(self) -> None:
        """Let its log end here. The queue writes the line that says so."""
        self.sender.end(self.folder.log_size())

    @property
    def is_given_back(self) -> bool:
        """Whether it is given back: RQ itself has ended its script before its word."""
        if self.refused or self.termination is None:
            return True
        if self.why in (None, Why.CANCELLED):
            return False
        is_proper = self.said.word is not None and self.termination.exit == 0
        return not (is_proper or self.said.word is Verb.ERR)

    def close(self, now: float) -> dict[str, Json]:
        """Keep and return its end as the queue's host takes it; nothing of it changes
        any more. `now` as `holding.now` gives it."""
        self.closed_at = now
        self.end = self._to_json()
        return self.end

    def _to_json(self) -> dict[str, Json]:
        how, said = self.termination, self.said
        assert how is not None
        if said.over is None:
            said.over = over_resources(
                self.limits,
                how,
                self.run_seconds,
                0 if self._script is None else self._script.oom_kills,
            )
        fields: dict[str, Json] = {
            "token": self.token,
            "word": None if said.word is None else str(said.word),
            "text": said.text,
            "result": said.result,
            "delay": said.delay or None,
            "dest": said.dest,
            "waits_for": said.waits_for,
            "unreadable": said.unreadable,
            "over": None if said.over is None else str(said.over.cause),
            "over_text": None if said.over is None else said.over.text,
            "printed": self.printed,
            "dups": self.dups,
            "exit": how.exit,
            "signal": how.signal,
            "run_us": int(self.run_seconds * 1e6),
            "cpu_us": how.cpu_us,
            "max_rss": how.max_rss,
        }
        kept = ("token", "word")
        return {k: v for k, v in fields.items() if k in kept or v not in (None, "", [])}
