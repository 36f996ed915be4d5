"""Ends what a script has left behind, before its message goes on."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from rq.logs import fields
from rq.proc import locks, processes
from rq.queues.owner import Owner
from rq.queues.script import TERM, Script
from rq.queues.slots import Slot, Slots
from rq.queues.tasks import Tasks
from rq.spool import leases

log = logging.getLogger(__name__)


class Sweeper:
    """Looks for children of scripts that have ended."""

    def __init__(self, owner: Owner, slots: Slots, tasks: Tasks) -> None:
        self._owner = owner
        self._slots = slots
        self._tasks = tasks

    def clear(
        self, script: Script, slot: Slot, thoroughly: bool, then: Callable[[], None]
    ) -> None:
        """End what a script that has ended has left behind; then go on."""
        if self._owner.config.leave_children:
            then()
            return
        try:
            left = script.has_children() or locks.is_locked(
                self._slots.path(slot.number)
            )
        except OSError as error:
            log.warning("what a script has left cannot be seen at once: %s", error)
            left, thoroughly = False, True
        if left:
            log.warning(
                "a script has left processes behind; RQ ends them: %s",
                fields(lease=slot.lease, pid=script.pid),
            )
            script.signal_left(TERM)
            self._tasks.spawn(self._sweep(slot, then))
        elif thoroughly:
            self._tasks.spawn(self._sweep(slot, then))
        else:
            then()

    async def _sweep(self, slot: Slot, then: Callable[[], None]) -> None:
        while left := await self._end_left(slot):
            for one in left:
                log.error(
                    "a process does not end; its message stays in run: %s",
                    fields(
                        lease=slot.lease,
                        pid=one.pid,
                        state=processes.state_letter(one.pid),
                    ),
                )
                os.close(one.pidfd)
            await asyncio.sleep(5.0)
        then()

    async def _end_left(self, slot: Slot) -> list[processes.Found]:
        path, grace = self._slots.path(slot.number), min(2.0, self._owner.main.grace)
        while True:
            try:
                return await self._owner.loop.run_in_executor(
                    None, leases.end_processes, slot.lease, [path], grace
                )
            except OSError as error:  # no descriptors, say: nobody has been looked for
                log.error("cannot end what a script left; RQ tries again: %s", error)
                await asyncio.sleep(1.0)
