"""What holders of leases say how far they are: shown soon in the folders of messages."""

from __future__ import annotations

import asyncio
import contextlib
import time

from rq.queues.attempts.lease import Lease
from rq.queues.attempts.leases import Leases
from rq.spool import Spool

SECONDS = 0.2  # at most that often the file `status` of a message
TEXT = 2000  # characters; a hundred thousand leases have one each
SLICE = 0.005  # seconds of writing in one go


class Progress:
    """The texts of one queue's leases that are not yet written."""

    def __init__(
        self, spool: Spool, loop: asyncio.AbstractEventLoop, leases: Leases
    ) -> None:
        self._spool = spool
        self._loop = loop
        self._leases = leases
        self._changed: dict[Lease, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def show(self, lease: Lease, text: str, fraction: float | None) -> None:
        """Take what a holder says."""
        lease.text, lease.fraction = text[:TEXT], fraction
        self._changed[lease] = None
        if self._timer is None:
            self._timer = self._loop.call_later(SECONDS, self._write)

    def _write(self) -> None:
        self._timer = None
        until = time.perf_counter() + SLICE
        spool = self._spool
        while self._changed and time.perf_counter() < until:
            lease = next(iter(self._changed))
            del self._changed[lease]
            if self._leases.held(lease.held.token) is lease:
                with contextlib.suppress(OSError):
                    spool.settle(lease.msg_id)
                spool.run_folders.write_progress(lease.msg_id, lease.text)
        if self._changed:
            self._timer = self._loop.call_later(SLICE, self._write)
