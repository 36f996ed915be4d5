"""Checkpoints and the index of one queue: begun, synced by a thread, written down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future

from rq.errors import Refused
from rq.proc import processes
from rq.queues.concurrency import Wakeup
from rq.queues.owner.health import Health
from rq.spool import Spool, checkpoint, index

INDEX_EVENTS = 500_000

log = logging.getLogger(__name__)


class Checkpoints:
    """From where a start would have to read the journal."""

    def __init__(
        self,
        spool: Spool,
        health: Health,
        wakeup: Wakeup,
        threads: Executor,
        on_failure: Callable[[str], None],
    ) -> None:
        """`threads`: the journal's; `on_failure`: the disk failed, and why. Then there is
        no checkpoint any more in this process."""
        self.seq = 0  # up to which event the last one goes
        self._spool = spool
        self._health = health
        self._wakeup = wakeup
        self._threads = threads
        self._on_failure = on_failure
        self._failed = False
        self._boot = processes.boot_id()
        self._point: checkpoint.Checkpoint | None = None
        self._syncing: Future[None] | None = None
        self._first_open: float | None = None  # when the first uncovered event came
        self._index: index.Writing | None = None
        self._finishing: Future[None] | None = None  # of the index before
        self._indexed = spool.last_seq

    def committed(self) -> None:
        """There are events that no checkpoint covers."""
        if self._first_open is None:
            self._first_open = time.monotonic()

    def mind(self) -> bool:
        """Move a checkpoint on; return whether it waits for folders that can be made now:
        of those that rest until later the loop knows."""
        if self._index is not None and not self._spool.pending:
            self._write_index()  # of what is durable only
        if self._syncing is not None:
            return False
        if self._point is None:
            self._begin_checkpoint()
        spool = self._spool
        if self._point is None or spool.checkpoint_waits:
            return self._point is not None and not spool.stuck and not spool.rests
        loop = asyncio.get_running_loop()
        self._syncing = self._threads.submit(
            checkpoint.finish, spool.dir_fd, spool.queue, self._point
        )
        self._syncing.add_done_callback(
            lambda _: loop.call_soon_threadsafe(self._checkpointed)
        )
        return False

    def _begin_checkpoint(self) -> None:
        spool = self._spool
        if self._failed or self._first_open is None or spool.pending:
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
            self._health.checkpoint = str(error)
            self._first_open = self._first_open or time.monotonic()
        elif error is not None:
            self._failed = True
            self._on_failure(str(error))
        elif point is not None:
            self.seq = point.seq
            self._health.checkpoint = None
            if point.seq - self._indexed > INDEX_EVENTS:
                self.start_index()

    def start_index(self) -> None:
        """Write a new index, in slices; nothing if that is going on."""
        if self._index is not None or (self._finishing and not self._finishing.done()):
            return
        spool = self._spool
        self._indexed = spool.last_seq
        self._index = index.Writing(spool.dir_fd, index.lines_of(spool))
        self._wakeup.ask_in(0.05)

    def _write_index(self) -> None:
        writing = self._index
        if writing is None:
            return
        try:
            if writing.write_slice():
                self._wakeup.ask_in(0.02)
                return
            self._index = None
            self._finishing = self._threads.submit(_finish, writing)
        except OSError as error:
            self._index = None
            _give_up(writing, error)

    # ---- the end

    @property
    def syncing(self) -> Future[None] | None:
        """What still syncs folders, on a thread."""
        return self._syncing

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint, or an index, is being written."""
        is_finishing = self._finishing is not None and not self._finishing.done()
        return self._syncing is not None or self._index is not None or is_finishing

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
    log.error(
        "the index of a checkpoint could not be written: %s; the next start takes "
        "longer",
        error,
    )
