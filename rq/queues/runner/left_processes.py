"""What earlier owners left and could not be ended at start: waited for."""

from __future__ import annotations

import logging
import os

from rq.causes import Cause
from rq.errors import Unread
from rq.proc import lease_holders, processes
from rq.proc.processes import Found
from rq.queues.owner import Owner
from rq.scripts.slots import Slots
from rq.spool import batch_dirs, lost_attempts
from rq.states import State

_log = logging.getLogger(__name__)


class LeftProcesses:
    """Processes that would not end; their messages stay in run until they do."""

    def __init__(self, owner: Owner, slots: Slots) -> None:
        self._owner = owner
        self._slots = slots
        self._left = list(owner.opened.left_processes)
        for one in self._left:
            if one.msg_id:
                owner.attempts.left.setdefault(one.msg_id, _sentence(one))
            if (slot := self._slot_of(one)) is not None:
                slots.keep(slot)

    def look(self) -> None:
        """Take back messages whose processes have all ended since."""
        for one in [one for one in self._left if processes.has_ended(one.pidfd)]:
            try:
                self._has_ended(one)
            except Unread as error:  # its message is read again at the next look
                _log.warning("a message cannot be taken back yet: %s", error)

    def _has_ended(self, one: Found) -> None:
        others = [other for other in self._left if other is not one]
        if one.msg_id and all(other.msg_id != one.msg_id for other in others):
            self._take_back(one.msg_id)
            self._owner.attempts.left.pop(one.msg_id, None)
        self._left = others
        os.close(one.pidfd)
        slot = self._slot_of(one)
        if slot is not None and all(self._slot_of(other) != slot for other in others):
            self._slots.free(slot)

    def _slot_of(self, one: Found) -> int | None:
        return batch_dirs.slot_of(one.lease, self._owner.opened.lease_prefix)

    def _take_back(self, msg_id: str) -> None:
        owner = self._owner
        if owner.spool.find(msg_id) is not State.RUN:
            return
        lost_attempts.recover(owner.spool, msg_id, False, Cause.CRASH)
        if owner.spool.find(msg_id) is State.QUE:
            owner.backlog.add(msg_id)
        owner.wake()


def _sentence(one: Found) -> str:
    if one.pid == 0:  # its slot is locked, and nobody shows that it holds it
        return lease_holders.hidden_sentence(0.0)
    if one.lease == lease_holders.OF_ANCESTOR:
        return f"Process {one.pid}, which the Ruby RQ started for it, still runs."
    state = processes.state_letter(one.pid)
    return f"Process {one.pid} (state {state}) holds its slot and does not end."
