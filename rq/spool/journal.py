"""The journal's writer: events in, one fdatasync a group, segments made ahead.

Ensures: a group is written only after the group before it is durable; `commit` returns
only when all that was appended is durable; a descriptor that failed is never synced
again. It never appends to a segment of an earlier process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from rq import durable
from rq.errors import DiskFailed
from rq.layout import QueueDir
from rq.spool import history, line
from rq.states import Note

GROUP_BYTES = 1024 * 1024
GROUP_EVENTS = 4096
SMALLEST = 1024 * 1024  # bytes of a segment
LARGEST = 64 * 1024 * 1024
QUICK = 60.0  # seconds; a segment that fills faster makes the next one larger
LINE_EXTRA = 48  # bytes that a line has around its event, at most
SPARE = 512  # bytes kept free behind a group, for a last line of its own
NEXT = "journal/next"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a journal stands: all before it is durable."""

    segment: str
    offset: int
    seq: int  # of the last event; 0 before the first
    g: int  # of the last group


@dataclass(slots=True)
class _Segment:
    name: str
    fd: int
    size: int
    offset: int
    seed: int
    opened: float
    empty: bool = True  # holds no event beside its header


class Journal:
    """Appends events for one owner process."""

    def __init__(
        self,
        queue: QueueDir,
        dir_fd: int,
        journal_id: str,
        start: int,
        last: Position,
        boot: str,
        threads: Executor | None = None,
    ) -> None:
        self.journal_id = journal_id
        self.start = start
        self.seq = last.seq
        self._durable = last
        self._queue = queue
        self._dir_fd = dir_fd
        self._boot = boot
        self._threads = threads
        self._bodies: list[bytes] = []  # appended, not yet in the group
        self._bytes = 0
        self._group: list[bytes] = []  # written, not yet synced
        self._closed = False  # the group has its last line
        self._group_seq = self._group_bytes = 0
        self._lines = self._placed = 0  # lines and bytes of the group that are written
        self._size = SMALLEST
        self._ahead: Future[tuple[int, int]] | None = None
        self._made: tuple[int, int] | None = None
        self.no_space: str | None = None  # why the next segment cannot be made
        self._retry_at = 0.0
        self.failed: str | None = None  # why the last commit did not succeed
        self.bytes_written = 0  # since the last checkpoint began
        self._segment = self._open(self._make(SMALLEST))

    # ---- what it knows

    @property
    def position(self) -> Position:
        """The end of the last durable group."""
        return self._durable

    @property
    def pending(self) -> bool:
        """Whether events wait for `commit`."""
        return bool(self._bodies or self._group)

    @property
    def full(self) -> bool:
        """Whether the open group has to be committed before more is appended."""
        size, events = self._bytes, len(self._bodies)
        if not self._closed:
            size, events = size + self._group_bytes, events + len(self._group)
        return size >= GROUP_BYTES or events >= GROUP_EVENTS

    @property
    def segment(self) -> str:
        """The name of the segment that is written to."""
        return self._segment.name

    @property
    def segment_opened(self) -> float:
        return self._segment.opened

    @property
    def segment_empty(self) -> bool:
        return self._segment.empty

    # ---- appending

    def append(self, record: dict[str, Any]) -> int:
        """Add an event to the open group; return its seq."""
        self.seq += 1
        body = line.body({"seq": self.seq, **record})
        self._bodies.append(body)
        self._bytes += len(body) + LINE_EXTRA
        return self.seq

    def write(self, last: bool = True) -> bool:
        """Write what was appended; return whether a kill -9 can no longer lose it.

        The group ends here if this is its `last` part, else more may follow. Only
        `commit` makes it durable, and reports a failure.
        """
        if self._bodies and not self._closed and not self.failed and self._fits():
            self._take_in(last)
            with contextlib.suppress(OSError):
                self._place()
        return not self._bodies and self._lines == len(self._group)

    def commit(self) -> None:
        """Make all appended events durable; DiskFailed: try again later.

        After a failure the same events go to a new segment, with the same seqs.
        """
        try:
            while self._bodies or self._group:
                if not self._closed:
                    self._close_group()
                if self._lines < len(self._group):
                    self._place()
                self._sync()
        except OSError as error:
            self.failed = error.strerror or str(error)
            raise DiskFailed(f"the journal cannot be written: {self.failed}") from None
        self._look_ahead()

    def _fits(self) -> bool:
        """Whether what was appended can follow what is written of the group; to a
        group of which nothing is written a new segment can be given."""
        segment = self._segment
        after = segment.offset + self._placed + self._bytes + SPARE
        return not self._lines or after <= segment.size

    def _take_in(self, last: bool) -> None:
        """Let what was appended be part of the group."""
        self._group += self._bodies
        self._group_bytes += self._bytes
        self._group_seq, self._closed = self.seq, last
        self._bodies, self._bytes = [], 0

    def _close_group(self) -> None:
        """Give the group its last line: whoever reads must be able to tell a torn line
        of it from one of the next. Where its segment ends with it none is needed."""
        if not self._fits():
            self._closed = True
            return
        if not self._bodies:
            now = time.time_ns() // 1000
            self.append({"ts": now, "queue": self._queue.name, "ev": Note.GROUP})
        self._take_in(True)

    def _place(self) -> None:
        """Write what is not yet written of the group."""
        needed = self._group_bytes + SPARE
        full = self._segment.offset + needed > self._segment.size
        if self.failed or (full and not self._lines):
            self._switch(needed)
        segment, bodies = self._segment, self._group[self._lines :]
        data = line.group(bodies, self._durable.g + 1, segment.seed, self._closed)
        durable.checkpoint("journal:before-write")
        try:
            durable.write_at(segment.fd, data, segment.offset + self._placed)
        except OSError:
            self._drop(segment)
            raise
        durable.checkpoint("journal:written")
        self._placed += len(data)
        self._lines += len(bodies)

    def _sync(self) -> None:
        """Make the placed group durable; after a failure it has to be placed anew."""
        segment = self._segment
        try:
            durable.sync_data(segment.fd)
        except OSError:
            self._drop(segment)
            raise
        segment.offset += self._placed
        segment.empty = False
        self.bytes_written += self._placed
        self._durable = Position(
            segment.name, segment.offset, self._group_seq, self._durable.g + 1
        )
        self._group, self._closed, self.failed = [], False, None
        self._group_bytes = self._lines = self._placed = 0

    def _drop(self, segment: _Segment) -> None:
        """Close a descriptor that failed; nothing on it is trusted again."""
        self.failed = self.failed or "a write failed"
        self._lines = self._placed = 0
        if segment.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(segment.fd)
            segment.fd = -1

    # ---- segments

    def seal(self) -> Future[None] | None:
        """Let what is durable become history; None when there is nothing new."""
        if self._segment.empty or self.pending or self.failed:
            return None
        return self._switch(0)

    def close(self) -> None:
        """Seal the last segment; nothing is appended afterwards."""
        self._wait_ahead()
        if self._made:
            os.close(self._made[0])
            self._made = None
        durable.unlink(NEXT, self._dir_fd)
        segment = self._segment
        if segment.fd >= 0:
            os.close(segment.fd)
            segment.fd = -1
        if not segment.empty:
            self._retire(segment, self._durable)

    def _switch(self, needed: int) -> Future[None] | None:
        """Go on in a new segment; the old one becomes history in a thread."""
        old, last = self._segment, self._durable
        quick = time.monotonic() - old.opened < QUICK and not self.failed
        if quick and old.offset > old.size // 2:
            self._size = min(self._size * 2, LARGEST)
        self._segment = self._open(self._take(needed + 4096))
        if old.fd >= 0:
            os.close(old.fd)
        if old.empty:
            return None
        # Of one that failed: what was durable before.
        return self._in_thread(lambda: self._retire(old, last))

    def _retire(self, segment: _Segment, last: Position) -> None:
        history.seal(
            self._queue,
            self._dir_fd,
            self.journal_id,
            segment.name,
            last.offset,
            last.seq,
        )

    def _open(self, made: tuple[int, int]) -> _Segment:
        """Name a made file as the segment of the next seq and write its header."""
        fd, size = made
        last = self._durable
        name = history.segment_name(last.seq + 1)
        start = line.seed(self.journal_id, name)
        header = line.sealed(
            line.body(
                {
                    "g": last.g,
                    "ev": Note.OPEN,
                    "journal": self.journal_id,
                    "segment": name,
                    "start": self.start,
                    "boot": self._boot,
                    "ts": time.time_ns() // 1000,
                    "queue": self._queue.name,
                    "prev": [last.segment, last.offset, last.seq],
                }
            ),
            start,
        )
        try:
            durable.write_at(fd, header, 0)
            durable.sync_data(fd)
            durable.checkpoint("segment:before-link")
            durable.move(NEXT, f"journal/{name}", self._dir_fd)
            durable.sync_path("journal", self._dir_fd)
        except OSError:
            os.close(fd)
            raise
        return _Segment(name, fd, size, len(header), start, time.monotonic())

    def _take(self, needed: int) -> tuple[int, int]:
        """Return a zero-filled file with room for `needed` bytes."""
        self._wait_ahead()
        made, self._made = self._made, None
        if made and made[1] >= needed:
            return made
        if made:
            os.close(made[0])
        return self._make(max(self._size, needed))

    def _make(self, size: int) -> tuple[int, int]:
        return durable.zero_filled(NEXT, size, self._dir_fd), size

    def _look_ahead(self) -> None:
        """See to it that the next segment is there before it is needed."""
        if self._ahead is not None:
            if self._ahead.done():
                self._wait_ahead()
            return
        if self._made or time.monotonic() < self._retry_at:
            return
        if self._threads is None:
            return
        size = self._size
        self._ahead = self._threads.submit(self._make, size)

    def _wait_ahead(self) -> None:
        if self._ahead is None:
            return
        ahead, self._ahead = self._ahead, None
        try:
            self._made = ahead.result()
            self.no_space = None
        except OSError as error:
            self.no_space = error.strerror or str(error)
            self._size = SMALLEST  # there may be room for a small one
            self._retry_at = time.monotonic() + 2.0

    def look_again(self) -> None:
        """Try again to make the next segment, when that had failed."""
        self._look_ahead()

    def _in_thread(self, work: Callable[[], None]) -> Future[None]:
        if self._threads is not None:
            return self._threads.submit(_logged, work)
        done: Future[None] = Future()
        work()
        done.set_result(None)
        return done


def _logged(work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        # The segment stays in journal/, where the next start finds and seals it.
        _log.error("a segment could not be sealed: %s", error)
