"""Ends leases that are over, and leaves out the time in which no holder could be heard."""

from __future__ import annotations

import asyncio
import logging
import time

from rq.proc.slices import SLICE, Slice
from rq.queues.leases.ends import Ends
from rq.queues.owner.owner import Owner

BEAT = 0.5  # seconds between looks
STALL = 1.0  # seconds that the loop may stand still before they are left out
_AT_ONCE = 50

log = logging.getLogger(__name__)


class Expiry:
    """Looks at the leases of one queue, as long as some are out.

    A look is a timer of the loop, which reads its sockets before its timers: a word that
    has come is heard before the lease can be over.
    """

    def __init__(self, owner: Owner, ends: Ends) -> None:
        self._owner = owner
        self._ends = ends
        self._timer: asyncio.TimerHandle | None = None
        self._looked = 0.0
        self._goes_on = False  # some are over, and wait for their ends

    def mind(self) -> None:
        """Look from now on, if there is something to look at."""
        if self._timer is None and len(self._owner.leases):
            self._looked = time.monotonic()
            self._set()

    def _set(self) -> None:
        self._timer = self._owner.loop.call_later(BEAT, self._look)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        passed, self._looked = now - self._looked, now
        if self._deaf:
            self._owner.leases.leave_out(passed)
        else:
            if passed - BEAT > STALL:
                self._owner.leases.leave_out(passed)
            if not self._goes_on:
                self._end_some()
        if len(self._owner.leases):
            self._set()

    @property
    def _deaf(self) -> bool:
        """Whether no word could be answered since the last look."""
        admission = self._owner.admission
        failed = admission.disk_failed or self._owner.spool.journal_failed
        return bool(failed or admission.restored)

    def _end_some(self) -> None:
        """End what is over, for a slice, and the rest behind what else is to be done."""
        self._goes_on = False
        turn = Slice()
        spool = self._owner.spool
        while not (turn.is_over or spool.group_full):
            over = self._owner.leases.over(_AT_ONCE)
            for lease in over:
                if not spool.entry(lease.msg_id).busy:
                    self._end(lease.msg_id)
            if len(over) < _AT_ONCE:
                return
        self._goes_on = True
        self._owner.loop.call_later(SLICE, self._end_some)
        self._owner.wake()

    def _end(self, msg_id: str) -> None:
        lease = self._owner.leases.of(msg_id)
        if lease is None:
            return
        try:
            self._ends.run_out(lease)
        except Exception:  # the others end all the same
            log.exception("a lease that is over could not be ended: %s", msg_id)
