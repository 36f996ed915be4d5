"""Follows the journal of a queue: sealed segments, and of the open one what is durable.

What is true at all times

- A place is (journal, seq, checksum of that line). The file in which the line stands, its
  inode and offset are hints: segments are sealed again under other names, and after a
  failed sync the same events stand in a new segment. The line is looked at each time before
  reading goes on behind it; where it does not stand, all segments are searched for it.
- Of a file with one behind it that counts which the header of that one says (`prev`): lines
  that were written and never synced may follow, and the next file has them again.
- Of the last file a group counts when a line of the next group follows, for that is written
  only after a sync. For the very last group the owner's word is needed (`Word`), which it
  sends after its sync. Any reader may go by the first rule; journal.md tells it.

What may happen

- The journal ends below the place, its line there has another checksum, or it is another
  journal that does not go on from ours: a backup was restored, a queue was made again under
  the old name. Then `Moved` is raised, and the queue is read from its beginning.
- Retention has removed segments behind the place: reading goes on with the oldest there is.
- A line of a sealed segment is bad: `Damaged`. What lies before it was read; the queue waits
  for a person, as its owner does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, cast

from rq.errors import Damaged
from rq.index.store import Place
from rq.journal import history, line
from rq.journal.line import Header, Line
from rq.journal.segment_file import Segment, read_header
from rq.layout import JournalDir
from rq.spool.record import Record

_FIRST, _CHUNK = 64 * 1024, 1024 * 1024  # bytes that are read at once
_LONGEST = 4 * _CHUNK  # bytes of a line, at most


class Moved(Exception):
    """The journal does not hold what was read of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What the owner says is durable: all up to an event of a journal."""

    journal: str
    seq: int
    segment: str | None = None  # in which that event stands


class _Text(NamedTuple):
    """A line of a file, where it begins and ends."""

    line: Line
    checksum: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment, and up to which event it counts."""

    segment: Segment
    header: Header
    last: int | None  # None: it is the last one, and may be written to


class Follower:
    """Reads the lines of one queue behind a place, which moves with them."""

    def __init__(
        self, place: JournalDir, at: Place, parked: Path | None = None
    ) -> None:
        """`parked`: what the owner leaves as long as it has no process."""
        self._dir = place
        self._at_rest = tuple(map(str, (parked, place.active, place.history)))
        self._rested: tuple[int, ...] = ()
        self._first: int | None = None
        self.at = at
        self.word: Word | None = None
        self.has_tail = (
            False  # lines follow of which it is not known that they are durable
        )
        self._stamp: tuple[int, ...] = ()

    # ---- whether there is something to read

    def has_changed(self) -> bool:
        """Whether files have changed since this was last asked; a look costs little. Of a
        queue that is parked still nothing is listed: only an owner writes to segments."""
        rested = _all_at(self._at_rest)
        if rested and rested == self._rested:
            return False
        self._rested, self._first = rested, None
        stamp = tuple(map(_changed_at, self._watched()))
        changed = stamp != self._stamp
        self._stamp = stamp
        return changed

    def look_again(self) -> None:
        """Let the next look find a change."""
        self._stamp = self._rested = ()

    def _watched(self) -> list[Path]:
        active = [segment.path for segment in history.active_segments(self._dir)]
        journals = [self._dir.history / name for name in history.journals(self._dir)]
        return [self._dir.active, self._dir.history, *journals, *active]

    def remaining(self) -> tuple[int, int]:
        """Return about how many bytes are still to be read, and of how many."""
        sizes = [
            (segment, segment.path.stat().st_size)
            for segment in history.segments(self._dir)
        ]
        left = [
            size for segment, size in sizes if (segment.last or 2**63) > self.at.seq
        ]
        return sum(left), sum(size for _, size in sizes)

    def first(self) -> int:
        """Return the oldest event that the history holds; 0: none."""
        if self._first is None or not self._rested:
            try:
                every = history.segments(self._dir)
            except OSError:
                return 0
            self._first = every[0].first if every else 0
        return self._first

    def begun(self) -> float:
        """Return since when the history tells all (epoch seconds), if some of it was
        removed; 0: it is whole."""
        every = history.segments(self._dir)
        header = read_header(every[0].path) if every and every[0].first > 1 else None
        return header["ts"] / 1e6 if header else 0.0

    # ---- reading

    def read(self) -> Iterator[Record]:
        """Give the lines behind the place. Moved: it is no place of this journal."""
        self.has_tail = False
        parts = self._hinted() or self._searched()
        for part in parts:
            yield from self._read(part)

    def _read(self, part: _Part) -> Iterator[Record]:
        path, at = part.segment.path, self.at
        with path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            is_same = (at.file, at.inode) == (path.name, inode)
            start = at.at if is_same and at.at is not None else 0
            lines = _lines(file.fileno(), part, start)
            if part.last is None:
                lines = self._durable(part, lines)
            for text in lines:
                if text.line["seq"] <= self.at.seq:
                    continue
                self.at = Place(
                    journal=part.header["journal"],
                    seq=text.line["seq"],
                    checksum=text.checksum,
                    file=path.name,
                    inode=inode,
                    at=text.start,
                )
                yield cast("Record", text.line)

    def _durable(self, part: _Part, lines: Iterator[_Text]) -> Iterator[_Text]:
        """Give the lines of a file that is written to, as far as they are durable."""
        group: list[_Text] = []
        for text in lines:
            if group and text.line["g"] != group[0].line["g"]:
                yield from group
                group = []
            group.append(text)
        said = [text for text in group if self._is_said(part, text.line["seq"])]
        yield from said
        self.has_tail = len(said) < len(group)

    def _is_said(self, part: _Part, seq: int) -> bool:
        word = self.word
        return (
            word is not None
            and word.journal == part.header["journal"]
            and word.segment in (None, part.segment.name)
            and seq <= word.seq
        )

    # ---- where to go on

    def _hinted(self) -> list[_Part]:
        """Return the file that is written to, if the place stands in it; else nothing."""
        active = history.active_segments(self._dir)
        at = self.at
        if len(active) != 1 or at.file != active[0].name:
            return []
        part = _part(active[0])
        if part is None or part.header["journal"] != at.journal:
            return []
        return [part] if self._stands_at_hint(part) else []

    def _stands(self, text: _Text) -> bool:
        at = self.at
        return text.line["seq"] == at.seq and at.checksum in (None, text.checksum)

    def _searched(self) -> list[_Part]:
        """Return all files that hold lines behind the place."""
        every = history.segments(self._dir)
        if not every:
            return []
        headed = [part for segment in every if (part := _part(segment)) is not None]
        parts = [
            part if following is None else _bounded(part, following)
            for part, following in zip_longest(headed, headed[1:])
        ]
        self._check(parts)
        seq = self.at.seq
        return [part for part in parts if part.last is None or part.last > seq]

    def _check(self, parts: list[_Part]) -> None:
        """Moved unless the place is one of this journal."""
        at = self.at
        if at.journal is None or not parts:
            return
        if at.journal not in {part.header["journal"] for part in parts}:
            newest = parts[-1].header["journal"]
            if at.journal not in history.lineage(self._dir, newest):
                raise Moved
        holding = [part for part in parts if part.segment.first <= at.seq]
        if not holding:
            return  # retention has removed it
        part = holding[-1]
        if not self._stands_at_hint(part) and not any(
            map(self._stands, _lines_of(part))
        ):
            raise Moved

    def _stands_at_hint(self, part: _Part) -> bool:
        """Whether the place stands where it was: no line before it has to be read then."""
        at = self.at
        if at.file != part.segment.path.name or at.at is None:
            return False
        with part.segment.path.open("rb") as file, contextlib.suppress(Damaged):
            if os.fstat(file.fileno()).st_ino == at.inode:
                text = next(_lines(file.fileno(), part, at.at), None)
                return text is not None and self._stands(text)
        return False


def _bounded(part: _Part, following: _Part) -> _Part:
    """Return a part that ends where the header of the `following` one says."""
    last = following.header["prev"][2]
    sealed = part.segment.last
    return _Part(
        part.segment, part.header, last if sealed is None else min(last, sealed)
    )


def _part(segment: Segment) -> _Part | None:
    header = read_header(segment.path)
    return None if header is None else _Part(segment, header, segment.last)


def _lines_of(part: _Part) -> Iterator[_Text]:
    with part.segment.path.open("rb") as file:
        yield from _lines(file.fileno(), part, 0)


def _lines(fd: int, part: _Part, start: int) -> Iterator[_Text]:
    """Give the lines of a file from an offset on, but for its header, up to one that is
    not whole. Damaged: there may be none in a sealed one."""
    seed = line.seed_of(part.header)
    for at, text in _texts(fd, start):
        record = line.read(text, seed)
        if record is None or "seq" not in record:
            if record is not None:
                continue
            break
        if part.last is not None and record["seq"] > part.last:
            return
        yield _Text(record, text[8:16].decode(), at, at + len(text) + 1)
    else:
        return
    if part.segment.last is not None:
        raise Damaged(f"{part.segment.path}: bad line at byte {at}")


def _texts(fd: int, start: int) -> Iterator[tuple[int, bytes]]:
    """Give each line of a file, up to the zeros, with where it begins."""
    rest, at, size = b"", start, _FIRST
    while (data := os.pread(fd, size, at + len(rest))) and len(rest) <= _LONGEST:
        rest, size = rest + data, _CHUNK
        begin = 0
        while (end := rest.find(b"\n", begin)) >= 0:
            yield at + begin, rest[begin:end]
            begin = end + 1
        rest, at = rest[begin:], at + begin
        if rest.startswith(b"\0"):
            return


def _all_at(paths: tuple[str, ...]) -> tuple[int, ...]:
    """Return how files look that are all there; empty: one is not."""
    looks: list[int] = []
    try:
        for path in paths:
            about = os.stat(path)
            looks += about.st_ino, about.st_mtime_ns, about.st_ctime_ns
    except OSError:
        return ()
    return tuple(looks)


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
