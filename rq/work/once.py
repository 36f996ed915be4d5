"""Runs the script of a queue for one message: a process of its own."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rq.message import limits
from rq.message.limits import Limits, Over
from rq.scripts import children
from rq.scripts.log import StdioLog
from rq.scripts.pipe import Verb
from rq.scripts.program import Program
from rq.scripts.script import Script
from rq.scripts.slots import Slot, Slots
from rq.scripts.time_limits import Timed, TimeLimits
from rq.work.attempt import Attempt

CLEAR = 2.0  # seconds, at most, from TERM to KILL of what a script leaves
_LAST = frozenset(
    {Verb.DONE, Verb.FORWARD}
)  # words after which a message is not run again


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What scripts are started with and ended by."""

    program: Callable[[], Program]  # as it is started now; OSError
    slots: Slots
    dir_fd: int  # of the directory of all messages
    grace: float  # seconds between TERM and KILL
    leave_children: bool
    loop: asyncio.AbstractEventLoop
    time_limits: TimeLimits
    own_limits: Callable[[], Limits]  # of the script's own settings here

    def limit(self, attempt: Attempt) -> None:
        """Take in what an attempt may use: what the queue tells, or less."""
        own = self.own_limits()
        attempt.limits = limits.of(own, attempt.lease.limits.given())

    def mind(self, attempt: Attempt, printed: Callable[[], int]) -> None:
        """Look after the time of an attempt whose script has begun."""
        if not attempt.limits.of_time:
            return
        grace = attempt.limits.grace
        grace = self.grace if grace is None else min(grace, self.grace)

        def kill(over: Over) -> None:
            attempt.exceed(over, grace)

        timed = Timed(limits=attempt.limits, kill=kill, printed=printed)
        attempt.timed = self.time_limits.begin(timed)

    async def clear(self, script: Script, slot: Slot, thoroughly: bool) -> None:
        """End what a script that has ended has left behind, and free its slot."""
        path = self.slots.path(slot.number)
        family = self.program().family
        if not self.leave_children and children.may_be_left(
            script, slot, path, thoroughly, family
        ):
            grace = min(CLEAR, self.grace)
            await children.end_all(script, slot, path, grace, {})
        self.slots.free(slot.number)


class Once:
    """Starts a script for each message."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def run(self, attempt: Attempt, values: Mapping[str, str]) -> None:
        """Run the script, and return when nothing of it is left; OSError when it cannot
        be started."""
        slot = self._tools.slots.take()
        try:
            script, log = self._start(attempt, values, slot)
        except BaseException:
            os.close(slot.fd)
            self._tools.slots.free(slot.number)
            raise
        attempt.begin(script, log)
        self._tools.mind(attempt, log.size)
        if attempt.why is not None:  # it was to end before it began
            attempt.stop(attempt.why, self._tools.grace)
        await attempt.exited.wait()
        self._tools.time_limits.end(attempt.timed)
        assert script.termination is not None
        attempt.finish(script.termination)
        script.hang_up()
        if attempt.said.word is None:
            attempt.printed = log.last_printed()
        attempt.close_log()
        thoroughly = attempt.said.word not in _LAST
        await self._tools.clear(script, slot, thoroughly)

    def _start(
        self, attempt: Attempt, values: Mapping[str, str], slot: Slot
    ) -> tuple[Script, StdioLog]:
        program = self._tools.program()
        folder = attempt.folder
        log = StdioLog(
            self._tools.dir_fd, folder.job, attempt.open_job(), program.path, no_other
        )
        make = functools.partial(
            Script,
            loop=self._tools.loop,
            on_line=attempt.hear,
            on_exit=attempt.exited.set,
        )
        self._tools.limit(attempt)
        return program.start(slot, values, log, make, attempt.limits), log

    def retire(self) -> None:
        """Nothing: each script ends with its message."""

    @property
    def empty(self) -> bool:
        """Whether nothing runs without a message."""
        return True


def no_other(directory: int) -> None:
    """Let no log of another message be in a directory that was made for this one."""
    raise FileExistsError("a log lies in a new directory")
