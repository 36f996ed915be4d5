"""Segments as files: their names, sealing, and reading them back in order.

A journal's events lie in `history/JOURNAL/FIRST-LAST.jsonl` (sealed, only groups that
were durable) and in `journal/FIRST` (the last ones). Recovery and check read both;
other readers read sealed ones only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq import durable
from rq.errors import Damaged, is_busy
from rq.journal import line
from rq.layout import QueueDir
from rq.states import Note

DIGITS = 16

Pack = Callable[[dict[str, Any]], None]  # makes an event smaller, to be kept


def segment_name(first: int) -> str:
    """Return the name of the segment whose first event is `first`."""
    return f"{first:0{DIGITS}d}"


def sealed_name(first: int, last: int) -> str:
    """Return the name of a segment that has become history.

    >>> sealed_name(1, 20)
    '0000000000000001-0000000000000020.jsonl'
    """
    return f"{first:0{DIGITS}d}-{last:0{DIGITS}d}.jsonl"


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of events."""

    path: Path
    name: str
    first: int
    last: int | None  # None while it is not sealed


@dataclass(frozen=True, slots=True)
class Read:
    """What a segment holds: its header, the events, and where they end."""

    segment: Segment
    header: dict[str, Any]
    events: list[dict[str, Any]]
    end: int  # offset behind the last whole line
    bad: bool  # whether something other than zeros follows


def seal(
    queue: QueueDir, dir_fd: int, journal: str, name: str, end: int, last: int
) -> None:
    """Cut a segment to its events and move it to the history, durably."""
    target = f"history/{journal}"
    durable.make_dirs(target, dir_fd)
    durable.sync_path("history", dir_fd)  # what is moved into it must be found there
    durable.cut(f"journal/{name}", end, dir_fd)
    durable.crash_point("seal:cut")
    sealed = sealed_name(int(name), last)
    durable.move(f"journal/{name}", f"{target}/{sealed}", dir_fd)
    for path in (target, "journal"):
        durable.sync_path(path, dir_fd)


def segments(queue: QueueDir, journal: str | None = None) -> list[Segment]:
    """Return the segments of a journal and of those that it goes on from, oldest first;
    of the active one by default."""
    active = active_segments(queue)
    wanted = journal or journal_of(queue, active)
    chain = lineage(queue, wanted) if wanted else []
    old = [one for name in chain for one in sealed_segments(queue, name)]
    # Of one that was sealed anew a power cut may have left the old file, and less in it.
    again = {one.first for one in old}
    left = [one for one in active if one.first not in again]
    # One that could not be sealed in its time lies before sealed ones.
    return sorted(old + left, key=lambda one: one.first)


def active_segments(queue: QueueDir) -> list[Segment]:
    """Return the segments that are not sealed, oldest first."""
    active = [
        Segment(path, path.name, int(path.name), None)
        for path in _list(queue.journal)
        if path.name.isdecimal() and len(path.name) == DIGITS
    ]
    return sorted(active, key=lambda one: one.first)


def sealed_segments(queue: QueueDir, journal: str) -> list[Segment]:
    """Return the sealed segments of a journal, oldest first; of two that hold the same
    events the wider one."""
    found = []
    for path in _list(queue.history / journal):
        first, _, last = path.name.removesuffix(".jsonl").partition("-")
        if path.name.endswith(".jsonl") and first.isdigit() and last.isdigit():
            found.append(Segment(path, first, int(first), int(last)))
    found.sort(key=lambda one: (one.first, -(one.last or 0)))
    kept: list[Segment] = []
    for one in found:
        if not kept or (one.last or 0) > (kept[-1].last or 0):
            kept.append(one)
    return kept


def journals(queue: QueueDir) -> list[str]:
    """Return the ids of all journals that left a history."""
    return sorted(path.name for path in _list(queue.history) if path.is_dir())


def journal_of(queue: QueueDir, active: list[Segment]) -> str | None:
    """Return the id of the journal that the last readable header names, be it that of
    a sealed segment: a stop may be cut short when all are sealed."""
    for one in reversed(active):
        header = read_header(one.path)
        if header is not None:
            return str(header["journal"])
    newest = [sealed_segments(queue, one)[-1:] for one in journals(queue)]
    headers = [h for found in newest for one in found if (h := read_header(one.path))]
    last = max(headers, key=lambda header: int(header["start"]), default=None)
    return None if last is None else str(last["journal"])


def lineage(queue: QueueDir, journal: str) -> list[str]:
    """Return a journal and those that it goes on from, the oldest first: the header of
    its first segment names the journal of a directory that was copied."""
    chain = [journal]
    while (before := _before(queue, chain[0])) is not None and before not in chain:
        chain.insert(0, before)
    return chain


def _before(queue: QueueDir, journal: str) -> str | None:
    for one in [*sealed_segments(queue, journal)[:1], *active_segments(queue)]:
        header = read_header(one.path)
        if header is not None and header["journal"] == journal:
            return header.get("of")
    return None


def is_whole(queue: QueueDir, journal: str) -> bool:
    """Whether every event is there that was ever written in a queue, by the names of
    its segments: none was removed, and no other journal came before."""
    every = segments(queue, journal)
    follow = all(
        one.last is None or following.first <= one.last + 1
        for one, following in itertools.pairwise(every)
    )
    begins = bool(every) and every[0].first == 1
    return begins and follow and all(one == journal for one in journals(queue))


def read_header(path: Path) -> dict[str, Any] | None:
    """Return the first line of a segment; None when there is no whole one. OSError: RQ
    lacks what it takes to look, and it says nothing yet."""
    try:
        with path.open("rb") as file:
            text = file.readline(8192)
    except OSError as error:
        if is_busy(error):
            raise
        return None
    claimed = line.peek(text) if text.endswith(b"\n") else None
    if not claimed or claimed.get("ev") != Note.OPEN:
        return None
    start = line.seed(str(claimed.get("journal")), str(claimed.get("segment")))
    return line.read(text[:-1], start)


def read_segment(segment: Segment, pack: Pack | None = None) -> Read | None:
    """Return all whole events of a segment; None when it has no header.

    Damaged: a line is bad, and behind it lies one of a later group.
    """
    header = _header_of(segment)
    if header is None:
        return None
    data = segment.path.read_bytes()
    start = line.seed(str(header["journal"]), str(header["segment"]))
    events: list[dict[str, Any]] = []
    at = data.index(b"\n") + 1
    while True:
        stop = data.find(b"\n", at)
        record = line.read(data[at:stop], start) if stop > at else None
        if record is None:
            break
        if pack is not None:
            pack(record)
        events.append(record)
        at = stop + 1
    rest = data[at:].rstrip(b"\0") if data[at:].strip(b"\0") else b""
    if rest:
        torn = header["g"] + 1
        if events:
            torn = events[-1]["g"] + (1 if events[-1].get("end") else 0)
        _refuse_damage(segment, rest, at, start, torn)
    return Read(segment, header, events, at, bool(rest))


def _header_of(segment: Segment) -> dict[str, Any] | None:
    """Return the header of a segment, if it has one. Lines without a header are damage:
    a segment gets its name when its header is on disk."""
    header = read_header(segment.path)
    if header is None and b'{"crc":"' in segment.path.read_bytes()[1:]:
        raise Damaged(
            f"{segment.path}: its first line is bad, and there are others behind it; "
            "docs/guide/backup.md says how it can go on"
        )
    return header


def _refuse_damage(
    segment: Segment, rest: bytes, at: int, start: int, torn: int
) -> None:
    """Tell the torn last group, `torn`, from damage in the middle: a later group was
    written only after that one was durable."""
    for text in rest.replace(b"\0", b"\n").split(b"\n"):
        record = line.read(text, start) if text else None
        if record is not None and record["g"] > torn:
            raise Damaged(
                f"{segment.path}: bad line at byte {at}, and good ones of later groups "
                "behind it; docs/guide/backup.md says how it can go on"
            )


def events_after(
    queue: QueueDir, seq: int, journal: str | None = None, pack: Pack | None = None
) -> Iterator[Read]:
    """Read the segments that hold events after `seq`, oldest first, one at a time, each
    cut where the next one says that it ends. Damaged: one of them ends too early."""
    every = segments(queue, journal)
    found = [
        one
        for one, following in itertools.zip_longest(every, every[1:])
        if following is None or (one.last or following.first - 1) > seq
    ]
    headed = [(one, head) for one in found if (head := _header_of(one)) is not None]
    for (one, _), following in itertools.zip_longest(headed, headed[1:]):
        read = read_segment(one, pack)
        if read is not None:
            yield read if following is None else _bounded(read, following[1])


def _bounded(read: Read, following: dict[str, Any]) -> Read:
    """Cut what was read where the header of the `following` segment says."""
    segment, offset, last = following["prev"]
    ends = read.events[-1]["seq"] if read.events else read.segment.first - 1
    if ends < last:
        raise Damaged(
            f"{read.segment.path} ends with event {ends}, the next segment follows "
            f"{last}; docs/guide/backup.md says how it can go on"
        )
    kept = [event for event in read.events if event["seq"] <= last]
    here = segment == read.segment.name
    return Read(read.segment, read.header, kept, offset if here else read.end, False)


def seal_last(queue: QueueDir, dir_fd: int, journal: str) -> None:
    """Make history of the last segment of an earlier process, before a new one says
    that it follows: what was written and never synced is on no disk yet."""
    for name in lineage(queue, journal):
        if (queue.history / name).is_dir():  # a kill may have kept it from its sync
            durable.sync_path(queue.history / name)
    for one in reversed(segments(queue, journal)):
        read = read_segment(one)
        if read is not None and one.last is None and read.events:
            _seal_anew(queue, dir_fd, one, read)
        if read is not None:
            return


def seal_left(queue: QueueDir, dir_fd: int, journal: str, but: str) -> None:
    """Make history of the segments of earlier processes: all `but` the new one."""
    every = segments(queue, journal)
    known = {one.path for one in every}
    for one in active_segments(queue):
        if one.path not in known:  # sealed anew, and its old file came back
            durable.unlink(f"journal/{one.name}", dir_fd)
    for one, following in itertools.pairwise(every):
        if one.last is not None or one.name == but:
            continue
        read, header = read_segment(one), read_header(following.path)
        if read is not None and header is not None:
            read = _bounded(read, header)
        if read is None or not read.events:
            durable.unlink(f"journal/{one.name}", dir_fd)
            continue
        _seal_anew(queue, dir_fd, one, read)


def _seal_anew(queue: QueueDir, dir_fd: int, one: Segment, read: Read) -> None:
    """Make history of a segment whose process did not: as a new file, since a sync of
    the old one may have failed, and what the page cache shows be on no disk."""
    target = queue.history / str(read.header["journal"])
    durable.make_dirs(str(target))
    durable.sync_path(queue.history)
    last = read.events[-1]["seq"]
    data = one.path.read_bytes()[: read.end]
    durable.write_durable(target / sealed_name(one.first, last), data)
    durable.crash_point("seal:written")
    durable.unlink(f"journal/{one.name}", dir_fd)
    durable.sync_path("journal", dir_fd)


def forget(
    queue: QueueDir,
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
    needed = lineage(queue, active)
    every = [one for journal in journals(queue) if journal != active
             for one in sealed_segments(queue, journal)]  # fmt: skip
    every += sealed_segments(queue, active)[:-1]  # the last names the journal
    total = sum(one.path.stat().st_size for one in every)
    removed = 0
    for one in every:
        found = one.path.stat()
        heavy = size is not None and total > size
        if not heavy and (before is None or found.st_mtime >= before):
            continue
        if one.path.parent.name in needed and (one.last or 0) > upto:
            return removed, True
        durable.unlink_durable(one.path)
        total -= found.st_size
        removed += 1
    return removed, False


def _list(directory: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [directory / name for name in os.listdir(directory)]
    return []
