"""Ends what a script has left behind, before its message goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rq.logs import fields
from rq.proc.family import Family
from rq.queues.attempts.registry import Attempts
from rq.queues.concurrency.tasks import Tasks
from rq.queues.owner.settings import Settings
from rq.scripts import children
from rq.scripts.script import KILL, Script
from rq.scripts.slots import Slot, Slots

PAUSE = 2.0  # seconds between attempts to end what does not end
GRACE = 2.0  # seconds, at most, from TERM to KILL

log = logging.getLogger(__name__)


class Orphans:
    """Ends the children of scripts that have ended."""

    def __init__(
        self,
        settings: Settings,
        attempts: Attempts,
        family: Family,
        slots: Slots,
        tasks: Tasks,
    ) -> None:
        self._settings = settings
        self._holders = attempts.holders
        self._family = family
        self._slots = slots
        self._tasks = tasks

    def clear(
        self, script: Script, slot: Slot, thoroughly: bool, then: Callable[[], None]
    ) -> None:
        """End what a script that has ended has left behind; then go on."""
        if self._settings.queue.leave_children:
            then()
            return
        path = self._slots.path(slot.number)
        if children.may_be_left(script, slot, path, thoroughly, self._family):
            self._tasks.spawn(self._end(script, slot, then))
        else:
            then()

    async def _end(self, script: Script, slot: Slot, then: Callable[[], None]) -> None:
        """Go on when no process is found and the slot is free: one that hides may be at
        work on the message."""
        path, holders = self._slots.path(slot.number), self._holders
        loop, grace = asyncio.get_running_loop(), min(GRACE, self._settings.main.grace)
        while holder := await children.end(loop, slot, path, grace):
            if holders.get(slot.number) != holder:
                log.error(
                    "a slot is not free; its message stays in run: %s",
                    fields(lease=slot.lease, reason=holder),
                )
            holders[slot.number] = holder
            script.signal_left(KILL)  # in its group no process can hide
            await asyncio.sleep(PAUSE)
        holders.pop(slot.number, None)
        then()
