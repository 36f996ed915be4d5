"""What earlier owners left and could not be ended at start: waited for."""

from __future__ import annotations

import os

from rq import proc
from rq.causes import Cause
from rq.queues.owner import Owner
from rq.spool import lost
from rq.states import State


class Ghosts:
    """Processes that would not end; their messages stay in run until they do."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._left = list(owner.opened.ghosts)

    def look(self) -> None:
        """Take back messages whose process has ended since."""
        still = []
        for one in self._left:
            if not proc.has_ended(one.pidfd):
                still.append(one)
                continue
            os.close(one.pidfd)
            self._take_back(one.msg_id)
        self._left = still

    def _take_back(self, msg_id: str) -> None:
        owner = self._owner
        if owner.spool.find(msg_id) is not State.RUN:
            return
        lost.recover(owner.spool, msg_id, False, Cause.CRASH)
        if owner.spool.find(msg_id) is State.QUE:
            owner.waits(msg_id)
        owner.wake()
