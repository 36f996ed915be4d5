"""Where a journal ends, and who wrote it last."""

from __future__ import annotations

import dataclasses

from rq.journal.checkpoint import Checkpoint
from rq.journal.segment_file import Content
from rq.journal.segments import Position


class End:
    """The end of a journal, as its segments are read one after the other."""

    def __init__(self, point: Checkpoint | None) -> None:
        self.last = Position("", 0, 0, 0)
        self.start, self.boot = 0, ""
        if point is not None:
            self.last = point.position
            self.start, self.boot = point.start, point.boot

    def take(self, content: Content) -> None:
        """Take the next segment."""
        position = _end_of(content)
        self.start = max(self.start, int(content.header["start"]))
        self.boot = str(content.header["boot"])
        if position.seq >= self.last.seq:
            g = max(position.g, self.last.g)
            self.last = dataclasses.replace(position, g=g)


def _end_of(content: Content) -> Position:
    header = content.header
    if not content.events:  # it will be replaced, so nothing can follow it
        segment, offset, seq = header["prev"]
        journal = str(header.get("of") or header["journal"])
        return Position(segment, offset, seq, int(header["g"]), journal)
    g, journal = content.events[-1]["g"], str(header["journal"])
    return Position(content.segment.name, content.end, content.last_seq, g, journal)
