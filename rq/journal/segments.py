"""The segment that a journal writes to, and the next one, which is made beforehand."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from rq.errors import cause_of, is_busy, is_no_room
from rq.files import disk, durable
from rq.journal import line, sealing
from rq.journal.line import Note
from rq.journal.segment_file import segment_name
from rq.layout import JOURNAL, JournalDir

SMALLEST = 1024 * 1024  # bytes of a segment
LARGEST = 64 * 1024 * 1024
QUICK = 60.0  # seconds; a segment that fills faster makes the next one larger
NEXT = f"{JOURNAL}/next"
RESERVE = f"{JOURNAL}/reserve"  # what becomes the next segment on a full disk

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a journal; all before it is durable."""

    segment: str
    offset: int
    seq: int  # of the last event; 0 before the first
    g: int  # of the last group
    journal: str = ""  # that the segment is of


@dataclass(frozen=True, slots=True)
class Author:
    """What the header of each segment tells of its writer."""

    journal: str
    start: int
    boot: str


@dataclass(slots=True)
class OpenSegment:
    """A segment that is written to; `fd` is -1 once it is closed."""

    name: str
    fd: int
    size: int
    offset: int
    seed: int
    opened: float  # monotonic
    empty: bool = True  # holds no event beside its header

    def close(self) -> None:
        """Close the descriptor, once; also after it failed."""
        fd, self.fd = self.fd, -1
        if fd != -1:
            os.close(fd)


class Segments:
    """The segment that is written to, and the file that will be the next."""

    def __init__(
        self,
        place: JournalDir,
        dir_fd: int,
        author: Author,
        last: Position,
        threads: Executor | None,
        reserve: int,
    ) -> None:
        self.no_space: str | None = None  # why the next segment cannot be made
        self.followed = False  # the current one takes no more: see `_open`
        self._place = place
        self._dir_fd = dir_fd
        self._author = author
        self._threads = threads
        self._size = SMALLEST
        self._ahead: Future[tuple[int, int]] | None = None
        self._next: tuple[int, int] | None = None
        self._retry_at = 0.0
        self._reserve = reserve  # bytes; 0: none is kept
        self._keeping: Future[bool] | None = None
        self._keep_at = 0.0
        # Segments before it are no history yet: their queue was parked.
        self.left = False
        self.current = self._open(self._next_file(SMALLEST), last)

    def switch(
        self, needed: int, last: Position, failed: bool = False
    ) -> Future[None] | None:
        """Go on in a new segment with room for `needed` bytes; the old one, durable up
        to `last`, becomes history in a thread, unless it is empty."""
        old = self.current
        quick = time.monotonic() - old.opened < QUICK and not failed
        if quick and old.offset > old.size // 2:
            self._size = min(self._size * 2, LARGEST)
        self.current = self._open(self._take(needed + 4096), last)
        old.close()
        if old.empty and not self.left:
            return None
        return self._in_thread(self._to_retire(old, None if old.empty else last))

    def retire_left(self) -> Future[None]:
        """Make history of the segments before this one that are none yet."""
        return self._in_thread(self._to_retire(self.current, None))

    def _to_retire(
        self, segment: OpenSegment, last: Position | None
    ) -> Callable[[], None]:
        """Return what makes history of the segments before one, which only one may do, and
        of itself up to `last`."""
        left, self.left = self.left, False

        def work() -> None:
            if left:
                sealing.seal_parked(
                    self._place, self._dir_fd, self._author.journal, segment.name
                )
            if last is not None:
                self._retire(segment, last)

        return work

    def park(self, last: Position) -> None:
        """Close the segment, which is durable up to `last`, and leave it where it is: one
        file of history for each time that a queue is parked would be too many."""
        self._end()
        if self.current.empty:
            durable.unlink(f"{JOURNAL}/{self.current.name}", self._dir_fd)
        else:
            durable.cut(f"{JOURNAL}/{self.current.name}", last.offset, self._dir_fd)

    def close(self, last: Position) -> None:
        """Make history of the segment, which is durable up to `last`."""
        self._end()
        self._to_retire(self.current, None if self.current.empty else last)()

    def _end(self) -> None:
        self._wait_ahead()
        if self._keeping is not None:
            self._keeping.exception()  # waits
        if self._next:
            os.close(self._next[0])
            self._next = None
        durable.unlink(NEXT, self._dir_fd)
        self.current.close()

    def _retire(self, segment: OpenSegment, last: Position) -> None:
        journal, end = self._author.journal, last.offset
        sealing.seal(self._dir_fd, journal, segment.name, end, last.seq)

    def _open(self, file: tuple[int, int], last: Position) -> OpenSegment:
        """Write the header into a zero-filled file, and give it the name of a segment.

        When the last step fails, the name may be there, and says where the segment
        before it ends: a reader takes nothing that is behind that place. So nothing more
        is written there; the next try has the same name.
        """
        fd, size = file
        name = segment_name(last.seq + 1)
        seed = line.seed(self._author.journal, name)
        header = self._header(name, last, seed, disk.identity(fd))
        try:
            durable.write_at(fd, header, 0)
            durable.sync_data(fd)
            durable.crash_point("segment:before-link")
            self.followed = True
            durable.move(NEXT, f"{JOURNAL}/{name}", self._dir_fd)
            durable.sync_path(JOURNAL, self._dir_fd)
        except OSError:
            os.close(fd)
            raise
        self.followed = False
        return OpenSegment(name, fd, size, len(header), seed, time.monotonic())

    def _header(
        self, name: str, last: Position, seed: int, file_id: disk.Identity
    ) -> bytes:
        record: dict[str, object] = {
            "g": last.g,
            "ev": Note.OPEN,
            "journal": self._author.journal,
            "segment": name,
            "start": self._author.start,
            "boot": self._author.boot,
            "ts": time.time_ns() // 1000,
            self._place.kind: self._place.name,
            "prev": [last.segment, last.offset, last.seq],
            "made": file_id,
        }
        if last.journal and last.journal != self._author.journal:
            record["of"] = last.journal
        return line.sealed(line.body(record), seed)

    # ---- where it lies

    def displaced(self) -> str | None:
        """Return why a start would not find what is written here: the path of the
        directory, or of the segment, is gone or leads to another file; None: it would.

        Both files are open, so their inodes are not given to others meanwhile. A seal is
        no change: the segment that is looked at is the one after it.
        """
        segment = self.current
        held = {self._place.path: self._dir_fd}
        # One that is followed has given its name away, if no event was in it.
        if segment.fd >= 0 and not self.followed:
            held[self._place.active / segment.name] = segment.fd
        for path, fd in held.items():
            try:
                if not os.path.samestat(os.fstat(fd), os.stat(path)):
                    return f"{path} is another one now"
            except (FileNotFoundError, NotADirectoryError):
                return f"{path} is gone"
            except OSError:  # it says nothing; a write will tell
                continue
        return None

    @property
    def is_removed(self) -> bool:
        """Whether the segment has no name any more."""
        return self.current.fd >= 0 and os.fstat(self.current.fd).st_nlink == 0

    # ---- made ahead

    @property
    def is_ready(self) -> bool:
        """Whether all that `look_ahead` makes is there."""
        keeping = self._keeping
        is_kept = keeping is not None and keeping.done() and keeping.result()
        is_whole = bool(self._next) and (is_kept or not self._reserve)
        return self._threads is None or is_whole

    def look_ahead(self) -> None:
        """Make the next segment in a thread, if there is none yet."""
        if self._ahead is not None:
            if self._ahead.done():
                self._wait_ahead()
            return
        if time.monotonic() < self._retry_at or self._threads is None:
            return
        if self._next:
            self._keep_reserve(self._threads)
            return
        size = self._size
        self._ahead = self._threads.submit(self._make, size)

    def _take(self, needed: int) -> tuple[int, int]:
        """Return a zero-filled file with room for `needed` bytes."""
        self._wait_ahead()
        ahead, self._next = self._next, None
        if ahead and ahead[1] >= needed:
            return ahead
        if ahead:
            os.close(ahead[0])
        return self._next_file(max(self._size, needed), needed)

    def _next_file(self, size: int, needed: int = 0) -> tuple[int, int]:
        """Return a zero-filled file of `size` bytes; on a full disk the reserve, if it
        holds what is needed."""
        try:
            return self._make(size)
        except OSError as error:
            if not self._reserve or not is_no_room(error) or self._reserve < needed:
                raise
            self.no_space = _why(error)
            self._retry_at = time.monotonic() + 2.0
            self._keeping = None
            try:
                durable.move(RESERVE, NEXT, self._dir_fd)
            except FileNotFoundError:
                raise error from None
        fd = os.open(NEXT, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._dir_fd)
        return fd, os.fstat(fd).st_size

    def _keep_reserve(self, threads: Executor) -> None:
        """See in a thread that there is a reserve."""
        keeping = self._keeping
        if keeping is not None and (not keeping.done() or keeping.result()):
            return
        if self._reserve and time.monotonic() >= self._keep_at:
            self._keep_at = time.monotonic() + 2.0
            self._keeping = threads.submit(_keep, self._reserve, self._dir_fd)

    def _make(self, size: int) -> tuple[int, int]:
        return durable.zero_filled(NEXT, size, self._dir_fd), size

    def _wait_ahead(self) -> None:
        if self._ahead is None:
            return
        ahead, self._ahead = self._ahead, None
        try:
            self._next = ahead.result()
            self.no_space = None
        except OSError as error:
            if not is_busy(error):
                self.no_space = _why(error)
            self._size = SMALLEST  # there may be room for a small one
            self._retry_at = time.monotonic() + 2.0

    def _in_thread(self, work: Callable[[], None]) -> Future[None]:
        if self._threads is not None:
            return self._threads.submit(_logged, work)
        done: Future[None] = Future()
        work()
        done.set_result(None)
        return done


def _keep(size: int, dir_fd: int) -> bool:
    """Make the reserve, if there is none, and return whether there is one; it gets its
    name when it is whole."""
    new = f"{RESERVE}.new"
    try:
        os.stat(RESERVE, dir_fd=dir_fd)
    except FileNotFoundError:
        try:
            os.close(durable.zero_filled(new, size, dir_fd))
            durable.move(new, RESERVE, dir_fd)
        except OSError:  # it is tried again
            return False
    return True


def _logged(work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        # The segment stays in journal/, where the next start finds and seals it.
        _log.error("a segment could not be sealed: %s", error)


def _why(error: OSError) -> str:
    if is_no_room(error):
        return f"no space for the journal: {error.strerror}"
    return f"the journal cannot go on: {cause_of(error)}"
