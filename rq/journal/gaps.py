"""Fills gaps in the numbers of events with lines that say so; for `rq check --fix`.

An earlier RQ counted an event that it then could not write. All lines behind such a gap
are whole, and the segment ends where the next one says that it does. Where it does not,
lines are lost: that is damage, and stays so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import zip_longest

from rq.files import durable
from rq.journal import history, line
from rq.journal.line import Note
from rq.journal.segment_file import (
    Content,
    Segment,
    read_header,
    read_segment,
    sealed_name,
)
from rq.layout import JournalDir


def fill_gaps(place: JournalDir) -> list[str]:
    """Fill the holes of all journals of a place that has no owner; return what was done,
    a sentence for each segment."""
    active = history.journal_of(place, history.active_segments(place))
    journals = dict.fromkeys([*history.journals(place), *([active] if active else [])])
    return [
        f"{segment.name}: no event was ever written as {_listed(holes)}; lines that say "
        "so take the place"
        for journal in journals
        for segment, holes in _filled(place, journal)
    ]


def _filled(place: JournalDir, journal: str) -> Iterator[tuple[Segment, list[int]]]:
    every = history.segments(place, journal)
    for segment, following in zip_longest(every, every[1:]):
        content = read_segment(segment)
        if content is None or not content.events:
            continue
        if content.header["journal"] != journal:
            continue  # a journal before this one has its own turn
        last = content.last_seq if following is None else _end(content, following)
        there = {event["seq"] for event in content.events}
        if last is None or max(there) > last:
            continue
        holes = [seq for seq in range(segment.first, last + 1) if seq not in there]
        if holes:
            _write(place, content, last, set(holes))
            yield segment, holes


def _end(content: Content, following: Segment) -> int | None:
    """Return the last event that a segment may have had, if it is whole: its lines end
    just where the next segment says that they do."""
    header = read_header(following.path)
    if header is None:
        return None
    name, offset, last = header["prev"]
    whole = name == content.segment.name and offset == content.end
    return int(last) if whole else None


def _write(place: JournalDir, content: Content, last: int, holes: set[int]) -> None:
    """Make history of a segment, with a line in each hole."""
    segment, header = content.segment, content.header
    lines = segment.path.read_bytes()[: content.end].splitlines(keepends=True)
    by_seq = {
        event["seq"]: (event["g"], text)
        for event, text in zip(content.events, lines[1:], strict=True)
    }
    g, filled = int(header["g"]), [lines[0]]
    for seq in range(segment.first, last + 1):
        if seq in holes:
            filled.append(_void(place, seq, g, line.seed_of(header)))
        else:
            g, text = by_seq[seq]
            filled.append(text)
    target = place.history / header["journal"]
    durable.make_dirs(str(target))
    durable.sync_path(place.history)
    sealed = target / sealed_name(segment.first, last)
    durable.write_durable(sealed, b"".join(filled))
    if segment.path != sealed:
        durable.unlink_durable(segment.path)


def _void(place: JournalDir, seq: int, g: int, start: int) -> bytes:
    now = time.time_ns() // 1000
    record = {"seq": seq, "ts": now, place.kind: place.name, "ev": Note.VOID}
    return line.sealed(b'"g":%d,' % g + line.body(record), start)


def _listed(holes: list[int]) -> str:
    return ", ".join(map(str, holes[:10])) + (" …" if len(holes) > 10 else "")
