"""Checkpoints and the index of one queue: begun, synced by a thread, written down."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from rq.errors import Refused
from rq.proc import processes
from rq.queues.owner.owner import Owner
from rq.spool import checkpoint, index
from rq.states import Note

INDEX_EVENTS = 500_000

log = logging.getLogger(__name__)


class Checkpoints:
    """From where a start would have to read the journal."""

    def __init__(self, owner: Owner, on_failure: Callable[[], None]) -> None:
        self.owner = owner
        self._on_failure = on_failure  # of the disk
        self._boot = processes.boot_id()
        self._point: checkpoint.Checkpoint | None = None
        self._syncing: Future[None] | None = None
        self._first_open: float | None = None  # when the first uncovered event came
        self._index: index.Writing | None = None
        self._finishing: Future[None] | None = None  # of the index before
        self._indexed = owner.spool.last_seq

    def committed(self) -> None:
        """There are events that no checkpoint covers."""
        if self._first_open is None:
            self._first_open = time.monotonic()

    def mind(self) -> bool:
        """Move a checkpoint on; return whether it waits for folders that can be made."""
        if self._index is not None and not self.owner.spool.pending:
            self._write_index()  # of what is durable only
        if self._syncing is not None:
            return False
        if self._point is None:
            self._begin_checkpoint()
        spool = self.owner.spool
        if self._point is None or spool.checkpoint_waits:
            return self._point is not None and not spool.stuck
        self._syncing = self.owner.threads.submit(
            checkpoint.finish, spool.dir_fd, spool.queue, self._point
        )
        self._syncing.add_done_callback(
            lambda _: self.owner.loop.call_soon_threadsafe(self._checkpointed)
        )
        return False

    def _begin_checkpoint(self) -> None:
        spool = self.owner.spool
        if (
            self.owner.admission.disk_failed
            or self._first_open is None
            or spool.pending
        ):
            return
        waited = time.monotonic() - self._first_open
        written = spool.bytes_since_checkpoint
        if waited < checkpoint.AFTER_SECONDS and written < checkpoint.AFTER_BYTES:
            return
        self._first_open = None
        self._point = checkpoint.begin(spool, self._boot)

    def _checkpointed(self) -> None:
        syncing, self._syncing = self._syncing, None
        point, self._point = self._point, None
        error = syncing.exception() if syncing else None
        if isinstance(error, Refused):
            log.warning("%s; RQ tries again", error)
            self.owner.health.checkpoint = str(error)
            self._first_open = self._first_open or time.monotonic()
        elif error is not None:
            self._disk_failed(str(error))
        elif point is not None:
            self.owner.checkpoint_seq = point.seq
            self.owner.health.checkpoint = None
            if point.seq - self._indexed > INDEX_EVENTS:
                self.start_index()

    def start_index(self) -> None:
        """Write the index anew, in slices; nothing if that is going on."""
        if self._index is not None or (self._finishing and not self._finishing.done()):
            return
        spool = self.owner.spool
        self._indexed = spool.last_seq
        self._index = index.Writing(spool.queue, index.lines_of(spool))
        self.owner.loop.call_later(0.05, self.owner.wake)

    def _write_index(self) -> None:
        writing = self._index
        if writing is None:
            return
        try:
            if writing.write_slice():
                self.owner.loop.call_later(0.02, self.owner.wake)
                return
            self._index = None
            self._finishing = self.owner.threads.submit(_finish, writing)
        except OSError as error:
            self._index = None
            _give_up(writing, error)

    def _disk_failed(self, reason: str) -> None:
        """No checkpoint any more in this process: let workers end, then end."""
        self.owner.admission.disk_failed = reason
        self.owner.spool.note(Note.SUSPECT, reason=reason)
        self.owner.wake()
        log.error(
            "the disk failed: %s; nothing new is accepted, what runs may finish, then "
            "this process ends and the next one writes anew what is in doubt",
            reason,
        )
        self._on_failure()

    # ---- the end

    @property
    def syncing(self) -> Future[None] | None:
        """What still syncs folders, on a thread."""
        return self._syncing

    def abandon_index(self) -> None:
        """Write no more of the index; the file is free for another then."""
        if self._finishing is not None:
            self._finishing.result()
        if self._index is not None:
            self._index.abandon()
            self._index = None


def _finish(writing: index.Writing) -> None:
    """Make a new index the index; for a thread."""
    try:
        writing.finish()
    except OSError as error:
        _give_up(writing, error)


def _give_up(writing: index.Writing, error: OSError) -> None:
    writing.abandon()
    log.error("the index could not be written: %s; a start takes longer", error)
