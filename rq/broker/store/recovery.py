"""Reads what a node's directory holds, and goes on behind it.

The snapshot and the lines of the journal after it must follow each other without a gap:
missing lines would be jobs lost without a trace.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from math import inf

from rq.broker.desks.node import Node
from rq.broker.state import lines
from rq.broker.state.body import PlaceOf, no_file
from rq.broker.state.lines import Event
from rq.broker.store import snapshot
from rq.broker.store.clock import CLOCK, Reading
from rq.broker.store.moving import Moving
from rq.broker.store.place import ADVICE, Place
from rq.errors import Damaged, is_no_room
from rq.files import durable
from rq.journal import history, mark, sealing
from rq.journal.checkpoint import Checkpoint, End
from rq.journal.line import Line
from rq.journal.segment_file import bare, header_of
from rq.journal.segments import RESERVE, Author
from rq.journal.writer import Journal
from rq.proc import processes

RESERVE_BYTES = 4 * 1024 * 1024  # of lines that find room on a full disk


class Recovery:
    """What a start has read; `begin` goes on behind it."""

    def __init__(
        self, place: Place, place_of: PlaceOf = no_file, moving: Moving | None = None
    ) -> None:
        """`place_of` gives the places of bodies that lie in files; `moving` moves others
        there when they are too many for memory."""
        self.clock: Reading | None = None  # the last that was noted
        self.latest = 0.0  # moment of the broker's clock that a line tells, in seconds
        self.bytes_behind = 0  # of journal behind the snapshot
        self._place = place
        self._place_of = place_of
        self._moving = moving
        self._end = End(None)
        self._journal: str | None = None

    def read(self, node: Node) -> None:
        """Read the snapshot into `node`, and the journal after it. Damaged: something is
        missing, or not whole. OSError: something cannot be read now."""
        place = self._place.journal_dir
        self._journal = history.journal_of(place, history.active_segments(place))
        point = snapshot.read(
            self._place.snapshot,
            lambda event: self._apply(event, 0.0, node),
            self._place_of,
        )
        after = 0
        if point is not None:
            self._end = End(point)
            self.clock = Reading.from_json(point.content[CLOCK])
            after = point.position.seq
        self._refuse_gap(point)
        if self._journal is None:
            return
        last, taken = after, self._taken(after, node)
        for content in history.events_after(place, after, self._journal, taken.pack):
            taken.end_segment()
            self._end.take(content)
            last = content.last_seq
            self.bytes_behind += content.end
        if last < after:
            raise Damaged(f"{place.path}: its journal ends too early: {ADVICE}")

    def _refuse_gap(self, point: Checkpoint | None) -> None:
        """Damaged when the journal does not begin where the snapshot ends."""
        place = self._place.journal_dir
        if point is not None and not self._is_ours(point):
            raise Damaged(
                f"{place.path}: the snapshot is of another journal than the one that "
                f"lies beside it: {ADVICE}"
            )
        after = 0 if point is None else point.position.seq
        every = history.segments(place, self._journal)
        first = every[0].first if every else None
        if first is not None and first > after + 1:
            raise Damaged(
                f"{place.path}: the journal begins with event {first}, and those from "
                f"{after + 1} on are missing: {ADVICE}"
            )

    def _is_ours(self, point: Checkpoint) -> bool:
        """Whether the journal that lies there is, or goes on from, the one that a snapshot
        is of; one that was written before the first line is of whichever lies there."""
        if point.position.seq == 0:
            return True
        here, journal = self._journal, point.position.journal
        return here is not None and journal in history.lineage(
            self._place.journal_dir, here
        )

    def _taken(self, after: int, node: Node) -> _Lines:
        every = history.segments(self._place.journal_dir, self._journal)
        firsts = [each.first for each in every if header_of(each) is not None]
        return _Lines(after, firsts, lambda record: self._take(record, node))

    def _take(self, record: Line, node: Node) -> None:
        event = lines.event(record, self._place_of)
        if event is not None:
            now = record["ts"] / 1e6
            if now > self.latest:
                self.latest = now
            self._apply(event, now, node)
        elif record["ev"] == CLOCK:
            self.clock = Reading.from_json(record)

    def _apply(self, event: Event, now: float, node: Node) -> None:
        node.apply(event, now)
        if self._moving is not None and self._moving.is_short:
            self._moving.take(event)
            self._moving.go_on_now()

    def begin(self, dir_fd: int, threads: Executor) -> Journal:
        """Open a new segment; those of earlier processes become history. On a full disk
        the reserve makes room for that."""
        try:
            return self._begin(dir_fd, threads)
        except OSError as error:
            if not is_no_room(error):
                raise
        durable.unlink(RESERVE, dir_fd)
        return self._begin(dir_fd, threads)

    def _begin(self, dir_fd: int, threads: Executor) -> Journal:
        place, last = self._place.journal_dir, self._end.last
        before = self._journal or secrets.token_hex(4)
        sealing.seal_last(place, dir_fd, before)
        journal_id = mark.goes_on_as(place, before)
        mark.write(place, dir_fd, journal_id, before)
        author = Author(journal_id, self._end.start + 1, processes.boot_id())
        journal = Journal(place, dir_fd, author, last, threads, RESERVE_BYTES)
        sealing.seal_left(place, dir_fd, before, journal.segment)
        return journal


class _Lines:
    """Takes the lines after an event as segments are read, and lets go of them at once: a
    segment of lines as objects takes ten times its size. A line is dead when the segment
    that follows begins with its number."""

    def __init__(
        self, after: int, firsts: Sequence[int], take: Callable[[Line], None]
    ) -> None:
        """`firsts`: of all segments, in their order."""
        self._after = after
        self._take = take
        self._next = iter(firsts[bisect_right(firsts, after + 1) :])
        self.end_segment()

    def end_segment(self) -> None:
        """What comes now is of the next segment."""
        self._dead_from = next(self._next, inf)

    def pack(self, record: Line) -> None:
        """Take an event; leave of it what places it in its segment."""
        if self._after < record["seq"] < self._dead_from:
            self._take(record)
        bare(record)
