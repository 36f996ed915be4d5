"""A journal that numbers events and writes none.

For a queue that waits for a person's decision: memory shows what recovery would do, and
the next start finds the disk as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from rq.journal.segments import Position


class DryRun:
    """Stands for the `Journal` of an owner that changes nothing."""

    def __init__(self, journal_id: str, start: int, last: Position) -> None:
        self.journal_id = journal_id
        self.start = start
        self.seq = last.seq
        self.position = last
        self.pending = self.full = False
        self.segment = last.segment
        self.no_space: str | None = None
        self.failed: str | None = None
        self.displaced: str | None = None
        self.bytes_written = 0

    def append(self, record: Mapping[str, object]) -> int:
        """Number an event; it goes nowhere."""
        self.seq += 1
        return self.seq

    def write(self, last: bool = True) -> bool:
        return True

    def commit(self) -> None:
        """Nothing is to be made durable."""

    def seal(self) -> Future[None] | None:
        return None

    def close(self) -> None:
        """Nothing is open."""

    def look_at_place(self) -> None:
        """What is not written cannot lie elsewhere."""

    def look_again(self) -> None:
        """No segment is made ahead."""
