"""Ends what a script has left behind, before its message goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rq.logs import fields
from rq.proc import lease_holders, locks
from rq.queues.owner import Owner
from rq.queues.tasks import Tasks
from rq.scripts.script import KILL, TERM, Script
from rq.scripts.slots import Slot, Slots

PAUSE = 2.0  # seconds between attempts to end what does not end

log = logging.getLogger(__name__)


class Orphans:
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
            self._tasks.spawn(self._sweep(script, slot, then))
        elif thoroughly and not self._owner.family.is_alone():
            self._tasks.spawn(self._sweep(script, slot, then))
        else:
            then()

    async def _sweep(
        self, script: Script, slot: Slot, then: Callable[[], None]
    ) -> None:
        """Go on when nobody is found and the slot is free: who is hidden may be at work
        on the message."""
        held = self._owner.attempts.holders
        while holder := await self._end_left(slot):
            if held.get(slot.number) != holder:
                log.error(
                    "a slot is not free; its message stays in run: %s",
                    fields(lease=slot.lease, reason=holder),
                )
            held[slot.number] = holder
            script.signal_left(KILL)  # in its group nobody can hide
            await asyncio.sleep(PAUSE)
        held.pop(slot.number, None)
        then()

    async def _end_left(self, slot: Slot) -> str:
        path, grace = self._slots.path(slot.number), min(2.0, self._owner.main.grace)
        while True:
            try:
                return await self._owner.loop.run_in_executor(
                    None, lease_holders.clear, slot.lease, path, slot.since, grace
                )
            except OSError as error:  # no descriptors, say: nobody has been looked for
                log.error("cannot end what a script left; RQ tries again: %s", error)
                await asyncio.sleep(1.0)
