"""The segments of a journal, and its events in order.

A journal's events lie in `history/JOURNAL/FIRST-LAST.jsonl` (sealed, only groups that
were durable) and in `journal/FIRST` (the last ones). Recovery and check read both;
other readers read sealed ones only.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from rq.errors import Damaged
from rq.journal.line import Header
from rq.journal.segment_file import (
    DIGITS,
    Content,
    Pack,
    Segment,
    header_of,
    read_header,
    read_segment,
)
from rq.layout import JournalDir


def segments(place: JournalDir, journal: str | None = None) -> list[Segment]:
    """Return the segments of a journal and of those that it goes on from, oldest first;
    of the active one by default."""
    active = active_segments(place)
    wanted = journal or journal_of(place, active)
    chain = lineage(place, wanted) if wanted else []
    sealed = [segment for name in chain for segment in sealed_segments(place, name)]
    # After a power cut a segment that was sealed again may be there twice; the old file
    # may hold less.
    sealed_firsts = {segment.first for segment in sealed}
    left = [segment for segment in active if segment.first not in sealed_firsts]
    # A segment that could not be sealed when it was full is older than sealed ones.
    return sorted(sealed + left, key=lambda segment: segment.first)


def active_segments(place: JournalDir) -> list[Segment]:
    """Return the segments that are not sealed, oldest first."""
    active = [
        Segment(path, path.name, int(path.name), None)
        for path in _list(place.active)
        if path.name.isdecimal() and len(path.name) == DIGITS
    ]
    return sorted(active, key=lambda segment: segment.first)


def sealed_segments(place: JournalDir, journal: str) -> list[Segment]:
    """Return the sealed segments of a journal, oldest first; of two that hold the same
    events the wider one."""
    sealed = []
    for path in _list(place.history / journal):
        first, _, last = path.name.removesuffix(".jsonl").partition("-")
        if path.suffix == ".jsonl" and first.isdecimal() and last.isdecimal():
            sealed.append(Segment(path, first, int(first), int(last)))
    sealed.sort(key=lambda segment: (segment.first, -segment.sealed_last))
    widest: list[Segment] = []
    for segment in sealed:
        if not widest or segment.sealed_last > widest[-1].sealed_last:
            widest.append(segment)
    return widest


def journals(place: JournalDir) -> list[str]:
    """Return the ids of all journals that left a history."""
    return sorted(path.name for path in _list(place.history) if path.is_dir())


def journal_of(place: JournalDir, active: list[Segment]) -> str | None:
    """Return the id of the journal that was written last, by its header. When a stop
    was cut short, all segments may be sealed: then the history tells."""
    for segment in reversed(active):
        header = read_header(segment.path)
        if header is not None:
            return str(header["journal"])
    newest = [sealed_segments(place, journal)[-1:] for journal in journals(place)]
    paths = [segment.path for last in newest for segment in last]
    headers = [header for path in paths if (header := read_header(path)) is not None]
    last = max(headers, key=lambda header: int(header["start"]), default=None)
    return None if last is None else str(last["journal"])


def lineage(place: JournalDir, journal: str) -> list[str]:
    """Return a journal and those that it goes on from, the oldest first: the header of
    its first segment names the journal of a directory that was copied."""
    chain = [journal]
    while (before := _before(place, chain[0])) is not None and before not in chain:
        chain.insert(0, before)
    return chain


def _before(place: JournalDir, journal: str) -> str | None:
    for segment in [*sealed_segments(place, journal)[:1], *active_segments(place)]:
        header = read_header(segment.path)
        if header is not None and header["journal"] == journal:
            return header.get("of")
    return None


def is_whole(place: JournalDir, journal: str) -> bool:
    """Whether every event is there that was ever written in a place, by the names of
    its segments: none was removed, and no other journal came before."""
    every = segments(place, journal)
    follow = all(
        segment.last is None or following.first <= segment.last + 1
        for segment, following in itertools.pairwise(every)
    )
    begins = bool(every) and every[0].first == 1
    return begins and follow and all(other == journal for other in journals(place))


def events_after(
    place: JournalDir, seq: int, journal: str | None = None, pack: Pack | None = None
) -> Iterator[Content]:
    """Read the segments that hold events after `seq`, oldest first, one at a time, each
    cut where the next one says that it ends. Damaged: one of them ends too early."""
    every = segments(place, journal)
    wanted = [
        segment
        for segment, following in itertools.zip_longest(every, every[1:])
        if following is None or (segment.last or following.first - 1) > seq
    ]
    headed = [(each, head) for each in wanted if (head := header_of(each)) is not None]
    for (segment, _), following in itertools.zip_longest(headed, headed[1:]):
        content = read_segment(segment, pack)
        if content is not None:
            yield content if following is None else bounded(content, following[1])


def bounded(content: Content, following: Header) -> Content:
    """Cut what was read where the header of the `following` segment says."""
    name, offset, last = following["prev"]
    segment = content.segment
    if content.last_seq < last:
        raise Damaged(
            f"{segment.path} ends with event {content.last_seq}, the next segment "
            f"follows {last}; docs/guide/backup.md says how it can go on"
        )
    kept = [event for event in content.events if event["seq"] <= last]
    end = offset if name == segment.name else content.end
    return Content(segment, content.header, kept, end, False)


def _list(directory: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return [directory / name for name in os.listdir(directory)]
    return []
