"""A long-lived worker: a script that takes one message after the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from rq.logs import fields
from rq.proc.spawn import Termination
from rq.scripts.pipe import Said
from rq.scripts.script import KILL, TERM, Plan, Script, drained, give
from rq.scripts.slots import Slot
from rq.scripts.worker_protocol import READY, Limits, WorkerPhase

log = logging.getLogger(__name__)

ODDITIES = 20  # lines of one worker that RQ ignores, in the log
_READ = 64 * 1024
_LIVES = Termination(0, None, None, None)  # `ready` stands for exit 0


class Working(Protocol):
    """An attempt, as far as the worker knows it that has its message."""

    said: Said

    @property
    def at_work(self) -> bool:
        """Whether its script works on it."""

    def finish(self, termination: Termination, /) -> None:
        """Its script has exited, or is ready for the next message."""


class Sink(Protocol):
    """Where the output goes that belongs to an attempt."""

    def write(self, data: bytes, /) -> None:
        """Append it."""


class OpenLog:
    """A log that is open already, for output that comes by a pipe."""

    def __init__(self, fd: int) -> None:
        """Append to `fd`, which it closes."""
        self._fd = fd

    def write(self, data: bytes) -> None:
        """Append output; what the disk does not take is lost."""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Take no more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


Attempt = TypeVar("Attempt", bound=Working)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events(Generic[Attempt]):
    """What is called when a long-lived worker does something."""

    ready: Callable[[Worker[Attempt]], None]
    said: Callable[[Attempt, bytes], None]  # a line about its message
    printed: Callable[[Worker[Attempt], bytes], None]  # without a message
    exited: Callable[[Worker[Attempt]], None]


class Worker(Generic[Attempt]):
    """A long-lived worker, from its start until it has ended."""

    def __init__(
        self,
        make: Callable[[int], Plan],
        slot: Slot,
        loop: asyncio.AbstractEventLoop,
        events: Events[Attempt],
    ) -> None:
        """Start it; `make` is given the descriptor for its output."""
        self.slot = slot
        self.phase = WorkerPhase.STARTING
        self.renewing = False  # it ends when its message has
        self.attempt: Attempt | None = None
        self._log: Sink | None = None  # of its message
        self.messages = 0
        self._handed = 0  # bytes of the line of its message
        self._unread = 0  # of them, when it had ended
        self._began_to_read = False  # that line
        self.greeted = False  # it has said `ready`
        self.hung_up = False  # it was asked to end
        self._ignored = 0  # lines
        self.began = time.monotonic()
        self.began_at = time.time()
        self._loop = loop
        self._events = events
        self._output, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            plan = make(theirs)
            give([theirs], plan.run_as)
            self.script = Script(plan, loop, self._hear, self._exited)
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(theirs)
        os.set_blocking(self._output, False)
        loop.add_reader(self._output, self._printed)

    @property
    def pid(self) -> int:
        return self.script.pid

    def worn(self, limits: Limits) -> bool:
        return limits.worn(self.messages, time.monotonic() - self.began)

    def reserve(self) -> None:
        """Keep it for a message."""
        self.phase = WorkerPhase.TAKEN

    def take(self, attempt: Attempt, log: Sink, line: bytes) -> None:
        """Give it a message, and its output from now on to `log`."""
        self._drain()  # what it printed before is not of this message
        self._log = log
        self.attempt = attempt
        self.messages += 1
        self._handed = len(line)
        self._began_to_read = False
        self.script.send(line)

    def retire(self, grace: float) -> None:
        """End it, after its message if it has one. `grace`: seconds that it has then,
        and again from TERM to KILL."""
        if self.phase is WorkerPhase.TAKEN:
            self.renewing = True
        else:
            self._hang_up(grace)

    def release(self, grace: float) -> None:
        """Go on without its message, or end it; `grace` as of `retire`."""
        self.attempt = self._log = None
        if self.renewing:
            self._hang_up(grace)
        else:
            self.phase = WorkerPhase.FREE

    def _hang_up(self, grace: float) -> None:
        self.phase = WorkerPhase.RETIRED
        self.hung_up = True
        self.script.hang_up()
        self._loop.call_later(grace, self.script.signal, TERM)
        self._loop.call_later(2 * grace, self.script.signal, KILL)

    @property
    def refused(self) -> bool:
        """Whether it has ended without having read a byte of its message."""
        silent = self.attempt is not None and self.attempt.said.word is None
        return silent and self._unread >= self._handed > 0

    # ---- its lines and output

    def _hear(self, text: bytes) -> None:
        if text.strip() == READY:
            self._ready()
        elif self.attempt is not None and self.attempt.at_work:
            if self._has_read():
                self._events.said(self.attempt, text)
            else:
                self._ignore(text)

    def _has_read(self) -> bool:
        """Whether it has begun to read the line of its message; what it says before is
        not about that message."""
        if not self._began_to_read:
            self._began_to_read = self.script.unread < self._handed
        return self._began_to_read

    def _ignore(self, text: bytes) -> None:
        self._ignored += 1
        if self._ignored > ODDITIES:
            return
        log.warning(
            "a worker spoke before it has read its message; RQ ignores it: %s",
            fields(pid=self.pid, line=text.decode("utf-8", "replace")[:200]),
        )

    def _ready(self) -> None:
        if self.phase is WorkerPhase.STARTING:
            self.phase, self.greeted = WorkerPhase.FREE, True
            self._events.ready(self)
        elif self.attempt is not None and self.attempt.at_work:
            if not self._has_read() or self.script.sending:
                self._ignore(READY)
            elif self.attempt.said.word is None:
                self._doubt()
            else:
                self._drain()
                self.attempt.finish(_LIVES)
                self._events.ready(self)

    def _doubt(self) -> None:
        """Find out what `ready` means that comes before any word about its message.

        Either it has forgotten the word, or it has said `ready` twice and has just read
        the message. So close its input. A worker with nothing to do then exits; one
        that works says how the message ends. It gets no other message, for its next
        word would end that one.
        """
        if not self.hung_up:
            log.warning(
                "a worker said `ready` before it said how its message ended; RQ gives "
                "it no other message: %s",
                fields(pid=self.pid),
            )
        self.renewing = self.hung_up = True
        self.script.hang_up()

    def _printed(self) -> None:
        try:
            data = os.read(self._output, _READ)
        except BlockingIOError:
            return
        if data:
            self._pass(data)
        else:
            self._loop.remove_reader(self._output)

    def _drain(self) -> None:
        """Take what it has printed so far: it belongs to the message that ends now."""
        for data in drained(self._output):
            self._pass(data)

    def _pass(self, data: bytes) -> None:
        if self._log is not None:
            self._log.write(data)
        else:
            self._events.printed(self, data)

    def _exited(self) -> None:
        self._drain()
        self._unread = self.script.unread
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self.script.hang_up()
        self.phase = WorkerPhase.RETIRED
        how = self.script.termination
        if self.attempt is not None and self.attempt.at_work and how:
            # Its processor time and memory are those of all its messages together.
            self.attempt.finish(replace(how, cpu_us=None, max_rss=None))
        self._events.exited(self)
