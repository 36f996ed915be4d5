"""Lease slots: locked files outside of messages, by which a process belongs to us."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from rq.proc import locks


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot that was taken: its lock goes to a script, and is closed here then."""

    number: int
    fd: int  # locked
    lease: str  # RQ_LEASE, another one each time
    since: float = field(default_factory=_since_boot)


class Slots:
    """The slots of one queue."""

    def __init__(self, directory: Path, prefix: str, start: int) -> None:
        self._directory = directory
        self._paths: dict[int, Path] = {}
        self._prefix = prefix
        self._start = start
        self._counter = 0
        self._used: set[int] = set()

    def take(self) -> Slot:
        """Take a slot that is free and that no process of a former attempt holds."""
        number = 0
        while number in self._used or (fd := self._lock(number)) is None:
            number += 1
        self._used.add(number)
        self._counter += 1
        lease = f"{self._prefix}{number}/{self._start}.{self._counter}"
        return Slot(number, fd, lease)

    def _lock(self, number: int) -> int | None:
        return locks.lock_slot(self.path(number))

    def keep(self, number: int) -> None:
        """Keep a slot from being taken that a process of an earlier owner holds."""
        self._used.add(number)

    def free(self, number: int) -> None:
        self._used.discard(number)

    def path(self, number: int) -> Path:
        path = self._paths.get(number)
        if path is None:
            path = self._paths[number] = self._directory / str(number)
        return path
