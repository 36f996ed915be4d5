"""Who asks for leases: the workers elsewhere, when they were heard of last."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rq.queues.attempts.leases import Leases
from rq.replies import RemoteWorker

FORGOTTEN = 3600.0  # seconds after which one is no longer shown that holds nothing
MOST = 10_000


@dataclass(slots=True)
class _Worker:
    slots: int | None
    version: str
    host: str
    heard: float  # epoch seconds


class Workers:
    """All workers of one queue that are no processes of it."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._all: dict[str, _Worker] = {}  # by name, the one heard of last at the end

    def hear(self, by: str, slots: int | None, version: str, host: str) -> None:
        """Take note that one has asked for leases, and what it says of itself."""
        before = self._all.pop(by, None)
        if before is not None:
            slots = before.slots if slots is None else slots
            version, host = version or before.version, host or before.host
        self._all[by] = _Worker(slots, version, host, time.time())
        if len(self._all) > MOST:
            del self._all[next(iter(self._all))]

    def rows(self) -> list[RemoteWorker]:
        """Return all that were heard of in the last hour, or hold something."""
        since = time.time() - FORGOTTEN
        return [
            {
                "by": by,
                "host": worker.host,
                "slots": worker.slots,
                "busy": self._leases.number_of(by),
                "last_heard": worker.heard,
                "version": worker.version,
            }
            for by, worker in self._all.items()
            if worker.heard > since or self._leases.number_of(by)
        ]
