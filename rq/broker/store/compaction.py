"""Writes snapshots, so that the journal before them can go and its space comes back.

New jobs are taken only while the disk has room for a snapshot of what lives: then those
who take jobs out can always make room for others.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future

from rq.broker.desks.node import Node
from rq.broker.store import snapshot
from rq.broker.store.bodies import Bodies
from rq.broker.store.clock import CLOCK, Clock
from rq.broker.store.place import Place
from rq.errors import cause_of
from rq.files import durable
from rq.journal import sealing
from rq.journal.checkpoint import Checkpoint
from rq.journal.writer import Journal
from rq.logs import fields
from rq.proc import processes
from rq.words.wording import size

SNAPSHOT_BYTES = 64 * 1024 * 1024  # of journal, before a snapshot is worth it
LINE = 300  # bytes of a line beside the body
SPARE = 4 * 1024 * 1024  # bytes of disk beyond a snapshot
SHORT = 64 * 1024  # bytes that are worth a snapshot when the disk is short of them
_AGAIN = 5.0  # seconds until a snapshot that failed is tried again
_LOOK = 1.0  # seconds between two looks at the disk
_EVER = float("inf")

log = logging.getLogger(__name__)


class Compaction:
    """The snapshots of one node that runs."""

    def __init__(
        self,
        place: Place,
        journal: Journal,
        clock: Clock,
        threads: Executor,
        behind: int,
    ) -> None:
        """`behind`: bytes of journal behind the last snapshot."""
        self.snapshots = 0  # since the start
        self.no_space: str | None = None  # why nothing new can be taken
        self._place = place
        self._journal = journal
        self._clock = clock
        self._threads = threads
        self._bytes = -behind  # of journal, when the last snapshot began
        self._writing: snapshot.Writing | None = None
        self._finishing: Future[None] | None = None
        self._size = _size(place)  # bytes of the last snapshot
        self._is_wanted = False  # the operator asked for one
        self._began = 0  # as above, of the one that is on its way
        self._look_at = self._again_at = 0.0

    def go_on(self, node: Node) -> bool:
        """Move a snapshot on; return whether one is on its way."""
        self._look(node)
        if self._finishing is not None:
            if self._finishing.done():
                self._finished(self._finishing)
            return self._finishing is not None
        if self._writing is None and self._is_worth_it(node):
            self._begin(node)
        if self._writing is None:
            return False
        try:
            if not self._writing.write_slice():
                if self._is_displaced():
                    return False
                self._finishing = self._threads.submit(self._writing.finish)
        except OSError as error:
            self._given_up(error)
        return True

    def want(self) -> None:
        """Begin one in the next turn, unless one is on its way."""
        self._is_wanted = self._writing is None and self._finishing is None

    def _look(self, node: Node) -> None:
        """See now and then whether the disk has room for a snapshot."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK
        self.no_space = self._shortage(_lives(node) + SPARE)

    def _is_displaced(self) -> bool:
        """Whether a snapshot, which has a path, would be laid over another node's; one
        that is being written is given up then."""
        self._journal.look_at_place()
        if self._journal.displaced is None:
            return False
        if self._writing is not None:
            self._writing.abandon()
            self._writing = None
        return True

    def _shortage(self, needed: int) -> str | None:
        try:
            room = os.statvfs(self._place.path)
        except OSError as error:
            return f"the disk cannot be looked at: {cause_of(error)}"
        free = room.f_bavail * room.f_frsize
        if free >= needed:
            return None
        return (
            f"no space: {size(free)} are free on the disk of {self._place.path}, and "
            f"{size(needed)} are needed to make room; free some, or take jobs out"
        )

    def _is_worth_it(self, node: Node) -> bool:
        """Whether the journal is long, and longer than what lives; on a disk that is
        short of space, whether some would come back."""
        if self._journal.pending or time.monotonic() < self._again_at:
            return False
        if self._is_wanted:
            return True
        written, lives = self._journal.bytes_written - self._bytes, _lives(node)
        if (self.no_space or self._journal.no_space) is not None:
            return written + self._size >= lives + max(SHORT, lives // 4)
        return written >= max(SNAPSHOT_BYTES, 2 * lives)

    def _begin(self, node: Node) -> None:
        self._is_wanted = False
        self._again_at = time.monotonic() + _AGAIN
        if self._is_displaced():
            return
        point = Checkpoint(
            position=self._journal.position,
            start=self._journal.start,
            boot=processes.boot_id(),
            content={CLOCK: self._clock.reading().to_json()},
        )
        try:
            self._writing = snapshot.Writing(
                self._place.snapshot, point, node.events_of_all()
            )
        except OSError as error:
            self._given_up(error)
            return
        self._began = self._journal.bytes_written

    def _finished(self, finishing: Future[None]) -> None:
        self._finishing = None
        if (error := finishing.exception()) is not None:
            self._given_up(error)
            return
        writing, self._writing = self._writing, None
        assert writing is not None
        self.snapshots += 1
        self._bytes, self._again_at = self._began, 0.0
        self._size = _size(self._place)
        if self._is_displaced():
            return
        self._seal()
        upto = writing.point.position.seq
        self._threads.submit(self._forget, upto)

    def _seal(self) -> None:
        """Let the segment that was written to be one that can go, with the next
        snapshot."""
        try:
            self._journal.seal()
        except OSError as error:
            log.error("the journal stays in one segment: %s", fields(reason=error))

    def _forget(self, upto: int) -> None:
        """Remove the journal up to an event that a snapshot knows."""
        place = self._place.journal_dir
        try:
            sealing.forget(place, self._journal.journal_id, upto, before=_EVER)
            durable.crash_point("snapshot:forgotten")
        except OSError as error:
            log.error("old segments stay: %s", fields(reason=error))

    def remove(self, bodies: Bodies, names: Sequence[str]) -> None:
        """Remove in a thread files of bodies whose jobs are gone."""
        self._threads.submit(self._remove, bodies, names)

    def _remove(self, bodies: Bodies, names: Sequence[str]) -> None:
        try:
            bodies.remove(names)
        except OSError as error:  # the next start removes them
            log.error("files of bodies stay: %s", fields(reason=error))

    def _given_up(self, error: BaseException) -> None:
        log.error("no snapshot was written: %s", fields(reason=error))
        if self._writing is not None:
            self._writing.abandon()
            self._writing = None

    def close(self) -> None:
        """End; a snapshot that was not whole is left."""
        if self._finishing is not None:
            self._finishing.exception()  # waits
        elif self._writing is not None:
            self._writing.abandon()


def _lives(node: Node) -> int:
    """Return about how many bytes a snapshot takes."""
    number, body_bytes = node.size
    return body_bytes + LINE * number


def _size(place: Place) -> int:
    with contextlib.suppress(FileNotFoundError):
        return place.snapshot.stat().st_size
    return 0
