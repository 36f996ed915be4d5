"""A segment as a file: its names, its header, and its events read back.

Active segments lie in `journal/FIRST`, sealed ones in `history/JOURNAL/FIRST-LAST.jsonl`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rq.errors import Damaged, is_busy
from rq.journal import line
from rq.journal.line import Header, Line, Note

DIGITS = 16

Pack = Callable[[Line], None]  # makes an event smaller, to be kept in memory


def bare(line: Line) -> None:
    """Leave of an event only what places it in its segment: a `Pack`."""
    kept = Line(seq=line["seq"], g=line["g"])
    if "end" in line:
        kept["end"] = line["end"]
    line.clear()  # type: ignore[attr-defined]
    line.update(kept)


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

    @property
    def sealed_last(self) -> int:
        """The last event of a sealed segment; 0 while it is not sealed."""
        return self.last or 0


@dataclass(frozen=True, slots=True)
class Content:
    """What a segment holds: its header, the events, and where they end."""

    segment: Segment
    header: Header
    events: list[Line]
    end: int  # offset behind the last whole line
    bad: bool  # whether something other than zeros follows

    @property
    def last_seq(self) -> int:
        """The last event; when there is none, the one before the segment."""
        return self.events[-1]["seq"] if self.events else self.segment.first - 1


def read_header(path: Path) -> Header | None:
    """Return the first line of a segment; None when there is no whole one.

    OSError: the file cannot be read now, so whether it has a header is not known.
    """
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
    return cast("Header | None", line.read(text[:-1], start))


def read_segment(segment: Segment, pack: Pack | None = None) -> Content | None:
    """Return all whole events of a segment; None when it has no header.

    Damaged: a line is bad, and behind it lies one of a later group.
    """
    header = header_of(segment)
    if header is None:
        return None
    data = segment.path.read_bytes()
    start = line.seed_of(header)
    events, end = _whole_events(data, start, pack)
    rest = data[end:].rstrip(b"\0") if data[end:].strip(b"\0") else b""
    if rest:
        torn = header["g"] + 1
        if events:
            torn = events[-1]["g"] + (1 if events[-1].get("end") else 0)
        _refuse_damage(segment, rest, end, start, torn)
    return Content(segment, header, events, end, bool(rest))


def _whole_events(data: bytes, start: int, pack: Pack | None) -> tuple[list[Line], int]:
    """Return the events behind the header up to a line that is not whole, and where
    that begins."""
    events: list[Line] = []
    at = data.index(b"\n") + 1
    while True:
        stop = data.find(b"\n", at)
        event = line.read(data[at:stop], start) if stop > at else None
        if event is None:
            return events, at
        if pack is not None:
            pack(event)
        events.append(event)
        at = stop + 1


def header_of(segment: Segment) -> Header | None:
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
        event = line.read(text, start) if text else None
        if event is not None and event["g"] > torn:
            raise Damaged(
                f"{segment.path}: bad line at byte {at}, and good ones behind it; "
                "docs/guide/backup.md says how it can go on"
            )
