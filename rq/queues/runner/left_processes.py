"""Processes that were left behind: those of a script that has ended are ended, before its
message goes on; those of earlier owners that could not be ended at the start are waited for."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from rq.errors import Unread
from rq.message.causes import Cause
from rq.proc import lease_holders, processes
from rq.proc.family import Family
from rq.proc.processes import Holder
from rq.queues.attempts.registry import Attempts
from rq.queues.concurrency import Tasks, Wakeup
from rq.queues.owner.backlog import Backlog
from rq.queues.owner.settings import Settings
from rq.scripts import children
from rq.scripts.script import Script
from rq.scripts.slots import Slot, Slots
from rq.spool import Opened, batch_dirs, lost_attempts
from rq.words.states import State

_log = logging.getLogger(__name__)


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


class LeftProcesses:
    """Processes that do not end; their messages stay in run until they have."""

    def __init__(
        self,
        opened: Opened,
        attempts: Attempts,
        backlog: Backlog,
        slots: Slots,
        wakeup: Wakeup,
    ) -> None:
        self._spool = opened.spool
        self._lease_prefix = opened.lease_prefix
        self._attempts = attempts
        self._backlog = backlog
        self._slots = slots
        self._wakeup = wakeup
        self._left = list(opened.left_processes)
        self._keys: dict[str, str] = {}  # message: the key that it keeps
        for process in self._left:
            if process.msg_id:
                attempts.left.setdefault(process.msg_id, _sentence(process))
                self._keep_key(process.msg_id)
            if (slot := self._slot_of(process)) is not None:
                slots.keep(slot)

    def _keep_key(self, msg_id: str) -> None:
        """Take the place of a message in run, so that no more run beside it than may."""
        entry = self._spool.entry_of(msg_id)
        if entry is None or entry.state is not State.RUN:
            return
        try:
            key = self._backlog.exclusion_key(msg_id)
        except Unread as error:
            _log.warning("a message cannot be read, so it excludes no other: %s", error)
            return
        if key is not None:
            self._keys[msg_id] = key
            self._backlog.take_key(key, msg_id)

    def look(self) -> None:
        """Take back messages whose processes have all ended since."""
        ended = [
            process for process in self._left if processes.has_ended(process.pidfd)
        ]
        for process in ended:
            try:
                self._has_ended(process)
            except Unread as error:  # its message is read again at the next look
                _log.warning(
                    "a message cannot be read, so it stays in run for now; RQ tries "
                    "again: %s",
                    error,
                )

    def _has_ended(self, process: Holder) -> None:
        others = [other for other in self._left if other is not process]
        if process.msg_id and all(other.msg_id != process.msg_id for other in others):
            self._take_back(process.msg_id)
            self._attempts.left.pop(process.msg_id, None)
        self._left = others
        os.close(process.pidfd)
        slot = self._slot_of(process)
        if slot is not None and all(self._slot_of(other) != slot for other in others):
            self._slots.free(slot)

    def _slot_of(self, process: Holder) -> int | None:
        return batch_dirs.slot_of(process.lease, self._lease_prefix)

    def _take_back(self, msg_id: str) -> None:
        spool = self._spool
        if spool.find(msg_id) is not State.RUN:
            return
        lost = lost_attempts.Lost(Cause.CRASH)
        lost_attempts.recover(spool, msg_id, False, lost)
        self._backlog.free_key(self._keys.pop(msg_id, None), msg_id)
        if spool.find(msg_id) is State.QUE:
            self._backlog.put(msg_id)
        self._wakeup.ask()


def _sentence(process: Holder) -> str:
    if process.pid == 0:  # its slot is locked by a process that cannot be found
        return lease_holders.hidden_sentence(0.0)
    if process.lease == lease_holders.OF_ANCESTOR:
        return f"Process {process.pid}, which the Ruby RQ started for it, still runs."
    state = processes.state_letter(process.pid)
    return f"Process {process.pid} (state {state}) holds its slot and does not end."
