"""Which events of which journals are to be read: sealed segments against an offset.

An offset is {journal: seq of the last event that was read}. Pure reading of directories,
without Spark: what is chosen here is what the source reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

from rq import names
from rq.errors import Damaged
from rq.journal import history, line, mark
from rq.journal.segment_file import Segment
from rq.layout import QueueDir, Root
from rq.words.nesting import Json

Offset = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal as it lies on disk."""

    queue: QueueDir
    journal: str
    sealed: Sequence[Segment]  # by their first events
    unsealed: Sequence[int]  # first events of what lies in journal/

    @property
    def name(self) -> str:
        return self.queue.name


@dataclass(frozen=True, slots=True)
class Stretch:
    """The events `first` to `last` of a journal."""

    queue: str  # path of its directory
    journal: str
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


def look(root: Root, queue: str | None = None) -> list[Journal]:
    """Return the journals of all queues, or of one."""
    journals: list[Journal] = []
    for path in _queue_dirs(root):
        if queue is None or path.name == queue:
            journals += _journals(QueueDir(path))
    return _without_copies(journals)


def _without_copies(every: list[Journal]) -> list[Journal]:
    """Leave out what was copied with a queue: a journal is read where it is written."""
    written: dict[str, Journal] = {}
    for candidate in every:
        other = written.get(candidate.journal)
        if other is None or _rank(candidate) > _rank(other):
            written[candidate.journal] = candidate
    return [journal for journal in every if written[journal.journal] is journal]


def _rank(journal: Journal) -> tuple[bool, int]:
    """Return what is greater of the queue that writes the journal."""
    is_written = mark.is_written(journal.queue.journal_dir, journal.journal)
    return is_written, journal.sealed[-1].last or 0


def names_of(root: Root) -> dict[str, str]:
    """Return the queue of each journal that there is, sealed or not yet."""
    dirs = [QueueDir(path) for path in _queue_dirs(root)]
    pairs = [
        (queue, journal)
        for queue in dirs
        for journal in history.journals(queue.journal_dir)
    ]
    # What was copied with a queue is of the one that writes it: it comes last.
    pairs.sort(key=lambda pair: mark.is_written(pair[0].journal_dir, pair[1]))
    return {journal: queue.name for queue, journal in pairs}


def _queue_dirs(root: Root) -> list[Path]:
    try:
        every = sorted(root.queues.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in every if names.is_queue_name(path.name)]


def _journals(queue: QueueDir) -> Iterator[Journal]:
    # What is not sealed is looked at first: a segment that moves meanwhile is seen twice,
    # never not at all.
    place = queue.journal_dir
    unsealed = [segment.first for segment in history.active_segments(place)]
    for journal in history.journals(place):
        sealed = history.sealed_segments(place, journal)
        if sealed:
            yield Journal(queue, journal, sealed, unsealed)


def held(journal: Journal) -> Iterator[tuple[int, int]]:
    """Give the first and the last event of each stretch without a gap that is sealed."""
    first, last = 0, 0
    for segment in journal.sealed:
        if last and segment.first > last + 1:
            yield first, last
            last = 0
        if not last:
            first = segment.first
        last = max(last, segment.sealed_last)
    if last:
        yield first, last


def reach(journal: Journal, after: int, *, skip_gaps: bool = False) -> int:
    """Return up to which event a journal can be read without a gap, `after` that one.

    Of a journal that was not read yet (0) the oldest may have outlived its retention.
    Damaged: events lie in no file.
    """
    at = after
    for segment in journal.sealed:
        last = segment.last or 0
        if last <= at:
            continue
        if segment.first > at + 1:
            if any(0 < first < segment.first for first in journal.unsealed):
                break  # it will be sealed before what follows is read
            if at and not skip_gaps:
                raise Damaged(_gap(journal, at + 1, segment.first - 1))
        at = last
    return at


def _gap(journal: Journal, first: int, last: int) -> str:
    return (
        f"queue {journal.name}: events {first} to {last} of journal {journal.journal} are "
        "in no file: lost, or removed by the queue's retention before they were read; "
        "`rq spark history --skip-gaps` goes on after them"
    )


def latest(
    journals: Sequence[Journal],
    start: Offset,
    *,
    rows: int | None = None,
    until: Offset | None = None,
    skip_gaps: bool = False,
) -> dict[str, int]:
    """Return up to where to read: all that is sealed, at most `rows` more events, and
    nothing behind `until`."""
    end = dict(start)
    left = rows
    for journal in journals:
        begin = start.get(journal.journal, 0)
        last = reach(journal, begin, skip_gaps=skip_gaps)
        if until is not None:
            last = min(last, until.get(journal.journal, 0))
        if left is not None:
            last = min(last, max(begin, journal.sealed[0].first - 1) + left)
        if last <= begin:
            continue
        end[journal.journal] = last
        if left is not None:
            left -= sum(part.rows for part in _parts(journal, begin, last))
            if left <= 0:
                break
    return end


def stretches(
    journals: Sequence[Journal], start: Offset, end: Offset, most: int
) -> list[Stretch]:
    """Return what lies between two offsets, in stretches of at most `most` events.

    Damaged: some of it is no longer there.
    """
    by_id = {journal.journal: journal for journal in journals}
    parts: list[Stretch] = []
    for journal_id, last in end.items():
        begin = start.get(journal_id, 0)
        if last <= begin:
            continue
        if journal_id not in by_id:
            raise Damaged(
                f"journal {journal_id} was planned to be read up to event {last}, and its "
                "queue is gone: link it into scandir/ again, or start the history "
                "anew with `rq spark history --rebuild`"
            )
        for part in _parts(by_id[journal_id], begin, last):
            parts += _cut(part, most)
    return parts


def _parts(journal: Journal, begin: int, last: int) -> Iterator[Stretch]:
    """Give what the segments hold of the events behind `begin` up to `last`, each
    event once."""
    at = begin
    for segment in journal.sealed:
        first, end = max(segment.first, at + 1), min(segment.last or 0, last)
        if first <= end:
            yield Stretch(str(journal.queue.path), journal.journal, first, end)
            at = end


def _cut(part: Stretch, most: int) -> Iterator[Stretch]:
    for first in range(part.first, part.last + 1, most):
        last = min(first + most - 1, part.last)
        yield Stretch(part.queue, part.journal, first, last)


# ---- reading


def read(part: Stretch) -> Iterator[Mapping[str, Json]]:
    """Give the events of a stretch, each proved by its checksum.

    The files are chosen again by their numbers: a merged one may have taken the place of
    those that were planned. Damaged: an event is not there or not whole.
    """
    seq = part.first  # of the next event
    place = QueueDir(Path(part.queue)).journal_dir
    for segment in history.sealed_segments(place, part.journal):
        if (segment.last or 0) < seq or segment.first > part.last:
            continue
        for record in _events(segment, seq, part.last):
            if record["seq"] != seq:
                break
            yield record
            seq += 1
    if seq <= part.last:
        raise Damaged(
            f"{part.queue}/history/{part.journal}: event {seq} is missing or not "
            "whole; `rq check` shows more"
        )


def _events(segment: Segment, first: int, last: int) -> Iterator[Mapping[str, Json]]:
    """Give the events from `first` to `last` of a segment, up to a line that is bad."""
    with segment.path.open("rb") as file:
        claimed = line.peek(file.readline())
        if claimed is None:
            return
        start = line.seed(str(claimed.get("journal")), str(claimed.get("segment")))
        # Events have no gaps: the line tells which one it is.
        before = max(0, first - segment.first)
        for text in islice(file, before, before + last - max(first, segment.first) + 1):
            record = line.read(text[:-1], start)
            if record is None:
                return
            yield cast(Mapping[str, Json], record)
