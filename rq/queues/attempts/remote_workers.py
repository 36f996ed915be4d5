"""The workers elsewhere that ask for leases, and when they were heard of last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice

from rq.queues.attempts.leases import Leases
from rq.replies import Elsewhere, RemoteWorker

FORGOTTEN = 3600.0  # seconds after which one is no longer shown that holds nothing
THERE = 120.0  # seconds after which one is taken to be gone: they ask each minute
MOST = 10_000
MOST_ROWS = 1000


@dataclass(slots=True)
class _Worker:
    slots: int | None
    version: str
    host: str
    heard: float  # epoch seconds, when it asked for leases last


class RemoteWorkers:
    """All workers of one queue that are no processes of it."""

    def __init__(self, leases: Leases, clock: Callable[[], float] = time.time) -> None:
        self._leases = leases
        self._clock = clock
        self._since = clock()
        self._all: dict[
            str, _Worker
        ] = {}  # by name, the one that asked last at the end

    def hear(self, by: str, slots: int | None, version: str, host: str) -> None:
        """Take note that one has asked for leases, and what it says of itself."""
        before = self._all.pop(by, None)
        if before is not None:
            slots = before.slots if slots is None else slots
            version, host = version or before.version, host or before.host
        self._all[by] = _Worker(slots, version, host, self._clock())
        if len(self._all) > MOST:
            del self._all[next(iter(self._all))]

    def rows(self) -> list[RemoteWorker]:
        """Return those that were heard of in the last hour, or hold something: of many
        those that asked last."""
        now = self._clock()
        # A start of the queue forgets who asked, and not who holds something.
        others = (by for by in self._leases.holders() if by not in self._all)
        names = (
            by
            for by in chain(reversed(self._all), others)
            if self._is_there(by, now, FORGOTTEN)
        )
        return [self._row(by, now) for by in islice(names, MOST_ROWS)]

    def _row(self, by: str, now: float) -> RemoteWorker:
        worker = self._all.get(by)
        return {
            "by": by,
            "host": worker.host if worker else "",
            "slots": worker.slots if worker else None,
            "busy": self._leases.number_of(by),
            "there": self._is_there(by, now, THERE),
            "last_heard": _latest(worker, self._leases.silent_for(by), now),
            "version": worker.version if worker else "",
        }

    def _is_there(self, by: str, now: float, within: float) -> bool:
        """Whether one holds something, or has asked within so many seconds."""
        worker = self._all.get(by)
        asks = worker is not None and worker.heard > now - within
        return asks or self._leases.number_of(by) > 0

    def are_there(self) -> bool:
        """Whether one has asked lately, or holds something."""
        last = next(reversed(self._all.values()), None)
        asks = last is not None and last.heard > self._clock() - THERE
        return asks or len(self._leases) > 0

    def facts(self, most: int) -> Elsewhere:
        """Return how many there are, and when one was heard of last; `most` leases may
        be out at a time."""
        now = self._clock()
        there = set(self._leases.holders())
        last = next(reversed(self._all.values()), None)
        for by, worker in reversed(self._all.items()):
            if worker.heard <= now - THERE:
                break
            there.add(by)
        return {
            "leases": len(self._leases),
            "max": most,
            "workers": len(there),
            "last_heard": _latest(last, self._leases.silent_for(), now),
            "since": self._since,
        }


def _latest(worker: _Worker | None, silent: float | None, now: float) -> float | None:
    """Return when one was heard of last: when it asked, or said a word about what it
    holds."""
    times = [] if worker is None else [worker.heard]
    return max(times if silent is None else [*times, now - silent], default=None)
