"""Admission: whether a queue takes messages and starts them, and why not. A little of the
disk is kept to finish with.
"""

from __future__ import annotations

import os
import time

from rq.config import room
from rq.config.admin import Admin, AdminFiles, Pause
from rq.config.settings import RootConfig
from rq.errors import Closed, DiskFailed, Displaced, NoRoom, RQError
from rq.queues.owner.settings import Settings
from rq.spool import LAG_BYTES, LAG_MESSAGES, Spool

HOLDS = 1.0  # seconds that an answer holds


class Admission:
    """Open or closed: by what the operator wants, the disk, the journal and the end."""

    def __init__(self, settings: Settings, spool: Spool, restored: str | None) -> None:
        """`restored`: why a person must decide first, because the directory was copied
        or restored; None: no decision is needed."""
        self.restored = restored
        self.stopping = False
        self.disk_failed: str | None = None
        self.displaced: str | None = None  # why the queue's directory is not its own
        self._files = AdminFiles(settings.root, settings.name)
        self._spool = spool
        self._room = DiskRoom(spool.dir_fd, settings.main)
        self._admin: Admin | None = None
        self._pause: Pause | None = None

    @property
    def admin(self) -> Admin:
        """What the operator wants; read from the files once a turn."""
        if self._admin is None:
            self._admin, self._pause = self._files.read(self._spool.clock())
        return self._admin

    @property
    def pause(self) -> Pause | None:
        """By whom, why and until when the queue is paused; None: it is not."""
        return self._pause if self.admin is Admin.PAUSE else None

    @property
    def goes_on_at(self) -> float | None:
        """When the pause that was read last is over, in epoch seconds; None: never, or
        it is over. The files are not read for this."""
        until = None if self._pause is None else self._pause.until
        return until if until is not None and until > self._spool.clock() else None

    def forget_admin(self) -> None:
        """Read again what the operator wants when that is asked for next."""
        self._admin = None

    @property
    def may_start(self) -> bool:
        """Whether messages may start."""
        failed = self.disk_failed or self._spool.journal_failed
        if self.restored or self.stopping or failed or self._spool.lag >= LAG_MESSAGES:
            return False
        return self.admin is Admin.UP

    @property
    def takes_deposits(self) -> bool:
        """Whether what lies in new/ may come in."""
        return self.admin is not Admin.DOWN and self.failure() is None

    def closed(self) -> str | None:
        """Return why nothing new can be accepted; None while it can."""
        failure = self.failure()
        return None if failure is None else str(failure)

    def failure(self) -> RQError | None:
        """Return the failure with which what is new is refused; None: it is taken."""
        if self.restored:
            return Closed(self.restored)
        if self.displaced:
            return Displaced(self.displaced)
        if self.disk_failed:
            return DiskFailed(f"the disk failed: {self.disk_failed}")
        if self.stopping:
            return Closed("the queue is stopping")
        if self._spool.journal_full:
            return NoRoom(self._spool.journal_full)
        if self._spool.stuck and (
            self._spool.lag >= LAG_MESSAGES or self._spool.lag_bytes >= LAG_BYTES
        ):
            return Closed(f"folders cannot be made: {self._spool.stuck}")
        lacking = self._room.lacking()
        return None if lacking is None else NoRoom(lacking)

    def check_open(self) -> None:
        """Raise why nothing new can be accepted, if it cannot."""
        failure = self.failure()
        if failure is not None:
            raise type(failure)(f"not accepted: {failure}")


class DiskRoom:
    """Looks at the disk of a queue, not too often."""

    def __init__(self, dir_fd: int, kept: RootConfig) -> None:
        self._dir_fd = dir_fd
        self._kept = kept
        self._looked = 0.0
        self._lacking: str | None = None

    def lacking(self) -> str | None:
        """Return why there is no room; None while there is."""
        now = time.monotonic()
        if now - self._looked > HOLDS:
            self._lacking = self._look()
            self._looked = now
        return self._lacking

    def _look(self) -> str | None:
        return room.lacking(os.statvfs(self._dir_fd), self._kept)
