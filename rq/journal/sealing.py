"""Makes history of segments, and removes history that is not wanted any more."""

from __future__ import annotations

import itertools

from rq.files import durable
from rq.journal import history
from rq.journal.line import Header
from rq.journal.segment_file import (
    Content,
    Segment,
    bare,
    read_header,
    read_segment,
    sealed_name,
)
from rq.layout import HISTORY, JOURNAL, JournalDir


def seal(dir_fd: int, journal: str, name: str, end: int, last: int) -> None:
    """Cut a segment to its events and move it to the history, durably."""
    target = f"{HISTORY}/{journal}"
    durable.make_dirs(target, dir_fd)
    durable.sync_path(HISTORY, dir_fd)  # what is moved into it must be found there
    durable.cut(f"{JOURNAL}/{name}", end, dir_fd)
    durable.crash_point("seal:cut")
    sealed = sealed_name(int(name), last)
    durable.move(f"{JOURNAL}/{name}", f"{target}/{sealed}", dir_fd)
    for path in (target, JOURNAL):
        durable.sync_path(path, dir_fd)


def seal_last(place: JournalDir, dir_fd: int, journal: str) -> None:
    """Make history of the last segment of an earlier process.

    Before a new segment says that it follows: lines that were written and never synced
    may not be on disk yet, and a power cut would leave a gap.
    """
    for name in history.lineage(place, journal):
        if (place.history / name).is_dir():  # a kill may have kept it from its sync
            durable.sync_path(place.history / name)
    for segment in reversed(history.segments(place, journal)):
        content = read_segment(segment, bare)
        if content is not None and segment.last is None and content.events:
            _seal_anew(place, dir_fd, content)
        if content is not None:
            return


def seal_left(place: JournalDir, dir_fd: int, journal: str, but: str) -> None:
    """Make history of the segments of earlier processes: all `but` the new one."""
    every = history.segments(place, journal)
    paths = {segment.path for segment in every}
    for segment in history.active_segments(place):
        if segment.path not in paths:  # sealed again, and its old file came back
            durable.unlink(f"{JOURNAL}/{segment.name}", dir_fd)
    _seal_all(place, dir_fd, every, but)


def seal_parked(place: JournalDir, dir_fd: int, journal: str, but: str) -> None:
    """As `seal_left`, beside a process that writes on: what it makes meanwhile is its own."""
    _seal_all(place, dir_fd, history.segments(place, journal), but)


def _seal_all(
    place: JournalDir, dir_fd: int, every: list[Segment], before: str
) -> None:
    for segment, following in itertools.pairwise(every):
        if segment.last is not None or segment.name >= before:
            continue
        content = read_segment(segment, bare)
        header = read_header(following.path)
        if (
            content is not None
            and header is not None
            and not _ends_early(content, header)
        ):
            content = history.bounded(content, header)
        if content is None or not content.events:
            durable.unlink(f"{JOURNAL}/{segment.name}", dir_fd)
            continue
        _seal_anew(place, dir_fd, content)


def _ends_early(content: Content, following: Header) -> bool:
    """Whether the segments between two are gone: one that could not be sealed when it was
    full stays while those after it, which are not needed any more, are removed. A
    reader that still wants them has been told by now."""
    _, _, last = following["prev"]
    return content.last_seq < last


def _seal_anew(place: JournalDir, dir_fd: int, content: Content) -> None:
    """Make history of a segment that its own process did not seal.

    It is copied into a new file: a sync of the old one may have failed, and then the
    page cache shows what is not on disk.
    """
    segment = content.segment
    target = place.history / str(content.header["journal"])
    durable.make_dirs(str(target))
    durable.sync_path(place.history)
    data = segment.path.read_bytes()[: content.end]
    name = sealed_name(segment.first, content.last_seq)
    durable.write_durable(target / name, data)
    durable.crash_point("seal:written")
    durable.unlink(f"{JOURNAL}/{segment.name}", dir_fd)
    durable.sync_path(JOURNAL, dir_fd)


def forget(
    place: JournalDir,
    active: str,
    upto: int,
    *,
    before: float | None = None,
    size: int | None = None,
) -> tuple[int, bool]:
    """Remove sealed segments that are older than `before` (epoch seconds), and the
    oldest until the rest take no more than `size` bytes; for good.

    Those of the journal `active`, and of those that it goes on from, stay from event
    `upto` on: recovery reads them. Return how many went, and whether one stayed only
    for that.
    """
    needed = history.lineage(place, active)
    every = _removable(place, active)
    total = sum(segment.path.stat().st_size for segment in every)
    removed = 0
    for segment in every:
        info = segment.path.stat()
        heavy = size is not None and total > size
        if not heavy and (before is None or info.st_mtime >= before):
            continue
        if segment.path.parent.name in needed and segment.sealed_last > upto:
            return removed, True
        durable.unlink_durable(segment.path)
        total -= info.st_size
        removed += 1
    return removed, False


def _removable(place: JournalDir, active: str) -> list[Segment]:
    """Return the sealed segments, those of other journals first; but the last of the
    active one, for it names the journal."""
    others = (journal for journal in history.journals(place) if journal != active)
    older = [
        segment
        for journal in others
        for segment in history.sealed_segments(place, journal)
    ]
    return older + history.sealed_segments(place, active)[:-1]
