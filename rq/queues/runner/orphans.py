"""Ends what a script has left behind, before its message goes on."""

from __future__ import annotations

from collections.abc import Callable

from rq.proc.family import Family
from rq.queues.attempts.registry import Attempts
from rq.queues.concurrency import Tasks
from rq.queues.owner.settings import Settings
from rq.scripts import children
from rq.scripts.script import Script
from rq.scripts.slots import Slot, Slots

GRACE = 2.0  # seconds, at most, from TERM to KILL


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
        path = self._slots.path(slot.number)
        grace = min(GRACE, self._settings.grace)
        await children.end_all(script, slot, path, grace, self._holders)
        then()
