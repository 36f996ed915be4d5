"""Uploads that are not finished: files under `config/tmp`, in bounded number and size.

Their list is kept in memory and read again once a minute: to read the directory for each
piece of an upload would cost more with each upload.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from rq.config import files
from rq.errors import Busy

SUFFIX = ".part"
KEPT = 36 * 3600.0  # seconds; as long as a message in prep
MOST = 1000
MOST_BYTES = 64 * 1024**3  # of all of them
SHARES = 4  # so many senders fill it: each has its share, or one file alone
ABANDONED = 600.0  # seconds without a piece, after which one may have to go
_LOOK = 60.0  # seconds between looks at the directory


@dataclass(slots=True)
class _Part:
    size: int  # bytes that have come, or were announced here
    touched: float  # epoch seconds
    sender: str


def name_of(what: str, sender: str) -> str:
    """Return what a file is called that is to be `what`, sent by `sender`.

    >>> name_of("q/ID/a", "ci") == name_of("q/ID/a", "token:ci")
    False
    """
    return f"{_digest(what)[:32]}-{_digest(sender)[:8]}{SUFFIX}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sender_of(name: str) -> str:
    """Return the digest of who sends a file; all processes see it in its name."""
    _, dash, sender = name.removesuffix(SUFFIX).rpartition("-")
    return sender if dash else ""


class UnfinishedUploads:
    """The unfinished uploads of one web process, and those that others left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._uploads: dict[str, _Part] = {}
        self._looked = -_LOOK

    def admit(self, name: str, size: int) -> Path:
        """Take note of a piece of a file of `size` bytes; Busy when there are too
        many unfinished ones, in all or of its sender, and none was abandoned."""
        now = time.time()
        if time.monotonic() - self._looked > _LOOK:
            self._look(now)
        before = self._uploads.pop(name, None)
        wanted = _Part(size, now, _sender_of(name))
        if before is None and self._is_full(wanted):
            self._look(now)
            self._make_room(wanted, now)
        self._uploads[name] = wanted  # the last is the youngest
        return self._directory / name

    def forget(self, name: str) -> None:
        """Remove one that is finished, or that nothing has come of."""
        self._uploads.pop(name, None)
        files.remove_upload(self._directory / name)

    def _is_full(self, wanted: _Part) -> bool:
        """Whether an upload exceeds what its sender, or all of them, may have.

        What one sender may have alone counts as its share, so no announcement, however
        large, keeps the others out.
        """
        parts = self._uploads.values()
        theirs = [part for part in parts if part.sender == wanted.sender]
        share = MOST_BYTES // SHARES
        size = sum(part.size for part in theirs)
        if len(theirs) >= MOST // SHARES or (theirs and size + wanted.size > share):
            return True
        shares = sum(min(part.size, share) for part in (*parts, wanted))
        return len(parts) >= MOST or shares > MOST_BYTES

    def _make_room(self, wanted: _Part, now: float) -> None:
        oldest_first = sorted(self._uploads.items(), key=lambda item: item[1].touched)
        for name, part in oldest_first:
            if not self._is_full(wanted):
                return
            if now - part.touched > ABANDONED and self._is_idle(name):
                self.forget(name)
        if self._is_full(wanted):
            theirs = [p for p in self._uploads.values() if p.sender == wanted.sender]
            raise Busy(
                f"not accepted: {len(self._uploads)} uploads are unfinished, "
                f"{len(theirs)} of them yours; send again when some have ended"
            )

    def _is_idle(self, name: str) -> bool:
        """Whether no request writes to it now."""
        with contextlib.suppress(OSError):
            fd = os.open(
                self._directory / name,
                os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
            )
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                os.close(fd)
            return True
        return False

    def _look(self, now: float) -> None:
        """List the directory; remove uploads that got no piece for long."""
        self._looked = time.monotonic()
        parts: dict[str, _Part] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if not entry.name.endswith(SUFFIX):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    sender = _sender_of(entry.name)
                    part = _Part(info.st_size, info.st_mtime, sender)
                    parts[entry.name] = part
        for name, part in parts.items():
            if (before := self._uploads.get(name)) is not None:
                part.size = max(part.size, before.size)
        self._uploads = parts
        for name in [n for n, part in parts.items() if now - part.touched > KEPT]:
            self.forget(name)
