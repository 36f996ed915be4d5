"""Numbers of events that no line has, given to lines that say so; for `rq check --fix`.

An earlier RQ counted an event that it then could not write. What follows was written whole,
and the next segment says where this one ends, so that a hole of numbers can be told from
lines that are lost: those stay damage.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import zip_longest

from rq import durable
from rq.journal import history, line
from rq.journal.history import Read, Segment
from rq.layout import QueueDir
from rq.states import Note


def fill_gaps(queue: QueueDir) -> list[str]:
    """Fill the holes of all journals of a queue that has no owner; return what was done,
    a sentence for each segment."""
    active = history.journal_of(queue, history.active_segments(queue))
    known = dict.fromkeys([*history.journals(queue), *([active] if active else [])])
    return [
        f"{one.name}: no event was ever written as {_shown(holes)}; lines that say so "
        "take the place"
        for journal in known
        for one, holes in _filled(queue, journal)
    ]


def _filled(queue: QueueDir, journal: str) -> Iterator[tuple[Segment, list[int]]]:
    every = history.segments(queue, journal)
    for one, following in zip_longest(every, every[1:]):
        read = history.read_segment(one)
        if read is None or not read.events or read.header["journal"] != journal:
            continue  # a journal before this one has its own turn
        last = read.events[-1]["seq"] if following is None else _end(read, following)
        there = {event["seq"] for event in read.events}
        if last is None or max(there) > last:
            continue
        holes = [seq for seq in range(one.first, last + 1) if seq not in there]
        if holes:
            _write(queue, journal, read, last, set(holes))
            yield one, holes


def _end(read: Read, following: Segment) -> int | None:
    """Return the last event that a segment may have had, if it is whole: its lines end
    just where the next segment says that they do."""
    header = history.read_header(following.path)
    if header is None:
        return None
    segment, offset, last = header["prev"]
    whole = segment == read.segment.name and offset == read.end
    return int(last) if whole else None


def _write(
    queue: QueueDir, journal: str, read: Read, last: int, holes: set[int]
) -> None:
    """Make history of a segment, with a line in each hole."""
    one = read.segment
    lines = one.path.read_bytes()[: read.end].splitlines(keepends=True)
    by_seq = {
        event["seq"]: (event["g"], text)
        for event, text in zip(read.events, lines[1:], strict=True)
    }
    start = line.seed(str(read.header["journal"]), str(read.header["segment"]))
    g, kept = int(read.header["g"]), [lines[0]]
    for seq in range(one.first, last + 1):
        if seq in holes:
            kept.append(_void(queue.name, seq, g, start))
        else:
            g, text = by_seq[seq]
            kept.append(text)
    place = queue.history / journal
    durable.make_dirs(str(place))
    durable.sync_path(queue.history)
    sealed = place / history.sealed_name(one.first, last)
    durable.write_durable(sealed, b"".join(kept))
    if one.path != sealed:
        durable.unlink_durable(one.path)


def _void(queue: str, seq: int, g: int, start: int) -> bytes:
    said = {"seq": seq, "ts": time.time_ns() // 1000, "queue": queue, "ev": Note.VOID}
    return line.sealed(b'"g":%d,' % g + line.body(said), start)


def _shown(holes: list[int]) -> str:
    return ", ".join(map(str, holes[:10])) + (" …" if len(holes) > 10 else "")
