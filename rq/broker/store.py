"""What makes a node's events durable, and finds them again: a journal and a snapshot.

The journal is the record. A snapshot lets the journal before it go: nothing else removes
a line.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq import durable
from rq.broker import lines, snapshot
from rq.broker.clock import Clock, Reading
from rq.broker.lines import Event
from rq.broker.node import Node
from rq.errors import Busy
from rq.journal import history, mark, sealing
from rq.journal.checkpoint import Checkpoint
from rq.journal.end import End
from rq.journal.segments import Author
from rq.journal.writer import Journal
from rq.layout import HISTORY, JOURNAL, JournalDir
from rq.logs import fields
from rq.proc import locks, processes

SNAPSHOT_BYTES = 64 * 1024 * 1024  # of journal, before a snapshot is worth it
CLOCK = "clock"  # a line that tells what the clocks show
CLOCK_SECONDS = 60.0  # between two of them
_EVER = float("inf")
_LINE = 300  # bytes of a line beside the body

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of one node."""

    path: Path

    @property
    def journal_dir(self) -> JournalDir:
        return JournalDir(path=self.path, kind="broker", name=self.path.name)

    @property
    def snapshot(self) -> Path:
        return self.path / "snapshot"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def node(self) -> Path:
        """Its id, kept for ever."""
        return self.path / "node"


class Store:
    """The journal and the snapshot of one node that runs."""

    def __init__(
        self,
        place: Place,
        dir_fd: int,
        journal: Journal,
        clock: Clock,
        threads: Executor,
    ) -> None:
        self.clock = clock
        self.snapshots = 0  # since the start
        self._place = place
        self._dir_fd = dir_fd
        self._journal = journal
        self._threads = threads
        self._clock_at = 0.0
        self._writing: snapshot.Writing | None = None
        self._finishing: Future[None] | None = None
        self._bytes = 0  # of journal behind the last snapshot

    # ---- events

    @property
    def full(self) -> bool:
        """Whether `commit` has to come before more is taken."""
        return self._journal.full

    @property
    def no_space(self) -> str | None:
        """Why nothing new can be taken; None while it can."""
        return self._journal.no_space

    def append(self, events: Iterable[Event], now: float) -> None:
        """Take events; they are durable after `commit`."""
        ts = int(now * 1e6)
        for event in events:
            self._journal.append({"ts": ts, **lines.record(event)})

    def write(self) -> bool:
        """Write what was taken, so that a kill -9 cannot lose it; False: not all is."""
        return self._journal.write(last=False)

    def commit(self) -> None:
        """Make all durable that was taken; DiskFailed: try again later."""
        now = self.clock.now()
        if now >= self._clock_at:
            self._clock_at = now + CLOCK_SECONDS
            self._note_clock()
        self._journal.commit()

    def _note_clock(self) -> None:
        reading = self.clock.reading()
        ts = int(reading.now * 1e6)
        self._journal.append({"ts": ts, "ev": CLOCK, **reading.to_json()})

    def look_again(self) -> None:
        """Try again to make room for the journal."""
        self._journal.look_again()

    # ---- the snapshot

    def mind_snapshot(self, node: Node) -> bool:
        """Move a snapshot on; return whether one is on its way."""
        if self._finishing is not None:
            if self._finishing.done():
                self._finished(self._finishing)
            return self._finishing is not None
        if self._writing is None:
            self._begin(node)
        if self._writing is None:
            return False
        try:
            if not self._writing.write_slice():
                self._finishing = self._threads.submit(self._writing.finish)
        except OSError as error:
            self._given_up(error)
        return True

    def _begin(self, node: Node) -> None:
        """Begin a snapshot when the journal is long, and longer than what lives."""
        written = self._journal.bytes_written - self._bytes
        number, body_bytes = node.size
        lives = body_bytes + _LINE * number
        if written < max(SNAPSHOT_BYTES, 2 * lives) or self._journal.pending:
            return
        self._bytes = self._journal.bytes_written
        point = Checkpoint(
            position=self._journal.position,
            start=self._journal.start,
            boot=processes.boot_id(),
            content={CLOCK: self.clock.reading().to_json()},
        )
        try:
            self._writing = snapshot.Writing(
                self._place.snapshot, point, node.events_of_all()
            )
        except OSError as error:
            self._given_up(error)

    def _finished(self, finishing: Future[None]) -> None:
        writing, self._writing, self._finishing = self._writing, None, None
        assert writing is not None
        if (error := finishing.exception()) is not None:
            self._given_up(error)
            return
        self.snapshots += 1
        self._journal.seal()
        upto = writing.point.position.seq
        self._threads.submit(self._forget, upto)

    def _forget(self, upto: int) -> None:
        """Remove the journal up to an event that a snapshot knows."""
        place = self._place.journal_dir
        try:
            sealing.forget(place, self._journal.journal_id, upto, before=_EVER)
        except OSError as error:
            log.error("old segments stay: %s", fields(reason=error))

    def _given_up(self, error: BaseException) -> None:
        log.error("no snapshot was written: %s", fields(reason=error))
        if self._writing is not None:
            self._writing.abandon()
            self._writing = None

    # ---- the end

    def close(self) -> None:
        """Make all durable, and end."""
        if self._finishing is not None:
            self._finishing.exception()  # waits
        self._note_clock()
        self._journal.commit()
        self._journal.close()
        os.close(self._dir_fd)


def open_store(place: Place, node: Node, threads: Executor) -> Store:
    """Take the lock of a node's directory and read what it holds into `node`.

    Busy: another process runs it. Damaged: its journal cannot be believed.
    """
    for name in (JOURNAL, HISTORY):
        durable.make_dirs(str(place.path / name))
    durable.sync_path(place.path)
    if locks.lock(place.lock) is None:
        raise Busy(f"another process runs the broker in {place.path}: end that first")
    dir_fd = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    read = _Reading(place, node)
    read.all()
    journal = read.begin(dir_fd, threads)
    return Store(
        place, dir_fd, journal, Clock(read.clock, processes.boot_id()), threads
    )


class _Reading:
    """Reads what lies on disk, and goes on behind it."""

    def __init__(self, place: Place, node: Node) -> None:
        self.clock: Reading | None = None
        self._place = place
        self._node = node
        self._end = End(None)
        self._journal: str | None = None

    def all(self) -> None:
        """Read the snapshot, and the journal after it."""
        place = self._place.journal_dir
        self._journal = history.journal_of(place, history.active_segments(place))
        point = snapshot.read(
            self._place.snapshot, lambda event: self._node.apply(event, 0.0)
        )
        if point is not None:
            self._end = End(point)
            self.clock = _clock(point.content[CLOCK])
            self._journal = self._journal or point.position.journal
        after = point.position.seq if point is not None else 0
        if self._journal is None:
            return
        for content in history.events_after(place, after, self._journal):
            self._end.take(content)
            for record in content.events:
                if record["seq"] > after:
                    self._take(record)

    def _take(self, record: Any) -> None:
        if record["ev"] == CLOCK:
            self.clock = _clock(record)
        elif (event := lines.event(record)) is not None:
            self._node.apply(event, record["ts"] / 1e6)

    def begin(self, dir_fd: int, threads: Executor) -> Journal:
        """Open a new segment; those of earlier processes become history."""
        place = self._place.journal_dir
        before = self._journal or secrets.token_hex(4)
        sealing.seal_last(place, dir_fd, before)
        journal_id = mark.goes_on_as(place, before)
        mark.write(place, dir_fd, journal_id, before)
        author = Author(journal_id, self._end.start + 1, processes.boot_id())
        journal = Journal(place, dir_fd, author, self._end.last, threads)
        sealing.seal_left(place, dir_fd, before, journal.segment)
        return journal


def _clock(content: Any) -> Reading:
    return Reading(content["now"], content["wall"], content["up"], content["boot"])
