"""What earlier owners left and could not be ended at start: waited for."""

from __future__ import annotations

import os

from rq.causes import Cause
from rq.proc import processes
from rq.queues.owner import Owner
from rq.spool import lost
from rq.states import State


class Ghosts:
    """Processes that would not end; their messages stay in run until they do."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._left = list(owner.opened.ghosts)

    def look(self) -> None:
        """Take back messages whose processes have all ended since."""
        ended = [one for one in self._left if processes.has_ended(one.pidfd)]
        self._left = [one for one in self._left if one not in ended]
        at_work = {one.msg_id for one in self._left}
        for one in ended:
            os.close(one.pidfd)
            if one.msg_id and one.msg_id not in at_work:
                self._take_back(one.msg_id)

    def _take_back(self, msg_id: str) -> None:
        owner = self._owner
        if owner.spool.find(msg_id) is not State.RUN:
            return
        lost.recover(owner.spool, msg_id, False, Cause.CRASH)
        if owner.spool.find(msg_id) is State.QUE:
            owner.waits(msg_id)
        owner.wake()
