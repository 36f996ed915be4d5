"""The journal's writer: events in, one fdatasync a group.

An event passes through three places: `_bodies` (appended), `_group` (of which the first
`_lines` are written), and what lies before `position`, which is durable.

What is true at all times

- One group is open. It is written only after the group before it is durable, so of all
  lines only those of the last group can be torn, and a bad line before it is damage.
- `commit` returns only when all that was appended is durable. `write` promises less: what
  it has written outlives a kill -9 of the process, not a power cut.
- Lines of a group carry its number, the last one says `end`. If a group must end when its
  last event is written already, a further line says `end`; SPARE keeps room for it.
- A segment is filled with zeros before its first line, and lines never reach past its
  size: fdatasync writes data alone, no metadata. A group that does not fit begins in a new
  segment. One that has begun ends in the old segment; what does not fit makes the next
  group.
- A descriptor that failed is never written or synced again, and no segment of an earlier
  process is appended to.

What may happen

- A write or a sync fails. The kernel reports an error of write-back once, and afterwards
  the page cache shows what is not on disk, so nothing that went through that descriptor
  is believed: it is closed, and the whole group goes to a new segment with the same `seq`
  and the same number. The header of the new segment says where the old one ends, so a
  reader that finds both takes each event once. Until that has succeeded `commit` raises
  DiskFailed and may be called again; who appended need not know.
- There is no room for the next segment. It is made ahead, in a thread, so that this is
  known while the current one still has room; `no_space` tells, and the owner accepts
  nothing new. With a reserve one segment is kept back, for events that must be
  written on a full disk, too.
- The path stops leading to what is open: the directory was removed, moved or mounted
  over, or a backup was laid over it. Writes and syncs still succeed then, and no start
  would find a line of them. So the path is looked at before a group is written, at most
  every LOOK seconds (two stats, some 30 microseconds), and when the owner asks. Whether
  the segment was removed is seen after each sync, before anything is answered (one fstat,
  2 microseconds): what `rm -rf` takes away was never promised. Once the path leads
  elsewhere the writer writes no more, whatever it leads to later: others may have worked
  there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future

from rq.errors import DiskFailed, Displaced
from rq.files import durable
from rq.journal import line
from rq.journal.line import Note
from rq.journal.segments import Author, OpenSegment, Position, Segments
from rq.layout import JournalDir

GROUP_BYTES = 1024 * 1024
GROUP_EVENTS = 4096
LINE_EXTRA = 48  # bytes that a line has around its event, at most
LOOK = 0.1  # seconds that a look at the journal's path holds
SPARE = 512  # bytes kept free behind a group, for a last line of its own


class Journal:
    """Appends events for one owner process."""

    def __init__(
        self,
        place: JournalDir,
        dir_fd: int,
        author: Author,
        last: Position,
        threads: Executor | None = None,
        reserve: int = 0,
    ) -> None:
        """`reserve`: bytes that are kept for when the disk is full; 0: none."""
        self.journal_id = author.journal
        self.start = author.start
        self.seq = last.seq
        self._durable = last
        self._dir = place
        self._bodies: list[bytes] = []  # appended, not yet in the group
        self._bytes = 0
        self._group: list[bytes] = []  # written, not yet synced
        self._closed = False  # the group has its last line
        self._group_seq = self._group_bytes = 0
        self._lines = self._placed = 0  # lines and bytes of the group that are written
        self.failed: str | None = None  # why the last commit did not succeed
        self.displaced: str | None = None  # why nothing is written any more
        self._look_at = 0.0  # when the path is looked at again (monotonic)
        self.bytes_written = 0  # since the last checkpoint began
        self._segments = Segments(place, dir_fd, author, last, threads, reserve)

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
        return self._segments.current.name

    @property
    def no_space(self) -> str | None:
        """Why the next segment cannot be made; None while it can."""
        return self._segments.no_space

    @property
    def is_ready(self) -> bool:
        """Whether the next segment is there, and the reserve if one is kept."""
        return self._segments.is_ready

    # ---- appending

    def append(self, record: Mapping[str, object]) -> int:
        """Add an event to the open group; return its seq.

        TypeError when it cannot be written; it takes no seq then, for one without a
        line would be missed for ever.
        """
        body = b'"seq":%d,%b' % (self.seq + 1, line.body(record))
        self.seq += 1
        self._bodies.append(body)
        self._bytes += len(body) + LINE_EXTRA
        return self.seq

    def write(self, last: bool = True) -> bool:
        """Write what was appended; return whether a kill -9 can no longer lose it.

        The group ends here if this is its `last` part, else more may follow. Only
        `commit` makes it durable, and reports a failure.
        """
        if not self._bodies and not self._group:
            return True
        if not self._is_in_place():
            return False
        if self._bodies and not self._closed and not self.failed and self._fits():
            self._take_in(last)
            with contextlib.suppress(OSError):
                self._place()
        return not self._bodies and self._lines == len(self._group)

    def commit(self) -> None:
        """Make all appended events durable; DiskFailed: try again later. Displaced:
        never again.

        After a failure the same events go to a new segment, with the same seqs.
        """
        if not self.pending:
            self._segments.look_ahead()
            return
        if not self._is_in_place():
            raise Displaced(str(self.displaced))
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
        if self._segments.is_removed:
            gone = f"{self._dir.active / self.segment} is gone"
            self.displaced = self._segments.displaced() or gone
            raise Displaced(self.displaced)
        self._segments.look_ahead()

    def look_at_place(self) -> None:
        """See whether the path of the journal still leads here: `displaced` tells."""
        self._look_at = 0.0
        self._is_in_place()

    def _is_in_place(self) -> bool:
        now = time.monotonic()
        if self.displaced is None and now >= self._look_at:
            self._look_at = now + LOOK
            self.displaced = self._segments.displaced()
        return self.displaced is None

    def _fits(self) -> bool:
        """Whether the segment has room for what was appended. A group of which nothing
        is written yet fits always: it can begin in a new segment."""
        segment = self._segments.current
        after = segment.offset + self._placed + self._bytes + SPARE
        return not self._lines or after <= segment.size

    def _take_in(self, last: bool) -> None:
        """Move what was appended into the group; `last`: nothing more comes into it."""
        self._group += self._bodies
        self._group_bytes += self._bytes
        self._group_seq, self._closed = self.seq, last
        self._bodies, self._bytes = [], 0

    def _close_group(self) -> None:
        """Give the group its last line, so that a reader can tell a torn line of this
        group from one of the next. A group that its segment ends with needs none."""
        if not self._fits():
            self._closed = True
            return
        if not self._bodies:
            place, now = self._dir, time.time_ns() // 1000
            self.append({"ts": now, place.kind: place.name, "ev": Note.GROUP})
        self._take_in(True)

    def _place(self) -> None:
        """Write what is not yet written of the group."""
        needed = self._group_bytes + SPARE
        segment = self._segments.current
        full = segment.offset + needed > segment.size
        if self.failed or self._segments.followed or (full and not self._lines):
            self._segments.switch(needed, self._durable, bool(self.failed))
            segment = self._segments.current
        bodies = self._group[self._lines :]
        data = line.group(bodies, self._durable.g + 1, segment.seed, self._closed)
        durable.crash_point("journal:before-write")
        try:
            durable.write_at(segment.fd, data, segment.offset + self._placed)
        except OSError:
            self._drop(segment)
            raise
        durable.crash_point("journal:written")
        self._placed += len(data)
        self._lines += len(bodies)

    def _sync(self) -> None:
        """Make the written group durable; after a failure it has to be written again."""
        segment = self._segments.current
        try:
            durable.sync_data(segment.fd)
        except OSError:
            self._drop(segment)
            raise
        segment.offset += self._placed
        segment.empty = False
        self.bytes_written += self._placed
        self._durable = Position(
            segment.name,
            segment.offset,
            self._group_seq,
            self._durable.g + 1,
            self.journal_id,
        )
        self._group, self._closed, self.failed = [], False, None
        self._group_bytes = self._lines = self._placed = 0

    def _drop(self, segment: OpenSegment) -> None:
        """Close a descriptor after an error: nothing written through it is trusted, and
        the kernel reports an error of write-back only once."""
        self.failed = self.failed or "a write failed"
        self._lines = self._placed = 0
        with contextlib.suppress(OSError):
            segment.close()

    # ---- segments

    def seal(self) -> Future[None] | None:
        """Make history of the segment, and begin a new one; None when it is empty or
        not all of it is durable."""
        if self.pending or self.failed or not self._is_in_place():
            return None
        if self.is_sealed:
            return None
        if self._segments.current.empty:
            return self._segments.retire_left()
        return self._segments.switch(0, self._durable)

    @property
    def is_sealed(self) -> bool:
        """Whether all events so far are history."""
        return self._segments.current.empty and not self._segments.left

    def leave(self, unsealed: bool) -> None:
        """Take note that segments of earlier processes are no history yet."""
        self._segments.left = unsealed

    def park(self) -> None:
        """Leave the last segment as it is; nothing is appended afterwards."""
        self._segments.park(self._durable)

    def close(self) -> None:
        """Seal the last segment; nothing is appended afterwards."""
        self._segments.close(self._durable)

    def look_again(self) -> None:
        """Make the next segment and the reserve, if they are not there, with no commit."""
        self._segments.look_ahead()


class DryRun:
    """Stands for the `Journal` of an owner that changes nothing: it numbers events and
    writes none.

    For a queue that waits for a person's decision: memory shows what recovery would do,
    and the next start finds the disk as it was."""

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

    def park(self) -> None:
        """Nothing is open."""

    is_sealed = True

    def close(self) -> None:
        """Nothing is open."""

    def look_at_place(self) -> None:
        """What is not written cannot lie elsewhere."""

    def look_again(self) -> None:
        """No segment is made ahead."""
