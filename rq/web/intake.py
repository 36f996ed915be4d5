"""A file that is being received: written and hashed as it comes, a large piece at a time.

However large it is, this process holds two pieces of it. Its digests are ready when its
last byte is, so that the owner, which attaches it, need not read it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import AsyncIterable, Iterator
from pathlib import Path

from rq.errors import NoRoom, RQError, is_no_room, not_done
from rq.web.site import Site

PIECE = 1024 * 1024  # bytes that are written at a time
_ROOM_EVERY = 8 * PIECE  # how often free space is looked at


class Intake:
    """An open file, and the digests of what it holds up to where it is written."""

    def __init__(self, fd: int) -> None:
        """Take the open file over."""
        self.fd = fd
        self._size = 0
        self._sha = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._at_work = threading.Lock()
        self._is_done = False  # its request has ended
        self._is_closed = False

    def cut(self, start: int) -> None:
        """Keep so many bytes of what came earlier; for a thread."""
        with self._working() as fd:
            if fd is not None and os.fstat(fd).st_size > start:
                # Never cut what is as it should be: ext4 writes such a file at once.
                os.ftruncate(fd, start)

    def read_again(self, start: int) -> bool:
        """Read a piece of what came earlier; return whether that was not all of it. For
        a thread, which has other files to look after between two pieces."""
        with self._working() as fd:
            if fd is None:
                return False
            left = start - self._size
            data = os.pread(fd, min(PIECE, left), self._size) if left else b""
            self._know(data)
            if not data:
                os.lseek(fd, self._size, os.SEEK_SET)
            return bool(data)

    def write(self, pieces: list[bytes]) -> None:
        """Append what has come; for a thread. A failure when the disk cannot take it."""
        data = b"".join(pieces)
        with self._working() as fd:
            if fd is None:
                return
            try:
                _write_all(fd, data)
            except OSError as error:
                raise cannot_take(error) from None
            self._know(data)

    @contextlib.contextmanager
    def _working(self) -> Iterator[int | None]:
        """Give the descriptor as long as it is needed; None when it is closed."""
        with self._at_work:
            yield None if self._is_closed else self.fd
        if self._is_done:
            self._close_if_idle()

    def _know(self, data: bytes) -> None:
        self._sha.update(data)
        self._md5.update(data)
        self._size += len(data)

    def digests(self) -> dict[str, str | int]:
        """Return the digests and the size of all that was written."""
        return {
            "sha256": self._sha.hexdigest(),
            "md5": self._md5.hexdigest(),
            "size": self._size,
        }

    def close(self) -> None:
        """Close the file now, or when the thread that writes it has ended. Do not wait:
        the event loop serves others, and a disk may be slow."""
        self._is_done = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._at_work.acquire(blocking=False):
            return  # the thread closes the file when it has ended
        try:
            if not self._is_closed:
                self._is_closed = True
                os.close(self.fd)
        finally:
            self._at_work.release()


def nameless(directory: Path) -> Intake:
    """Return a new file that is gone when it is closed, unless it is given a name."""
    try:
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        return Intake(os.open(directory, flags, 0o600))
    except (OSError, AttributeError):  # a file system, or a system, that knows none
        try:
            with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
                return Intake(os.dup(file.fileno()))
        except OSError as error:
            raise cannot_take(error) from None


async def go_on_from(site: Site, intake: Intake, start: int) -> None:
    """Keep so many bytes of what came earlier, and read them again for their digests."""
    await site.pools.file(intake.cut, start)
    while await site.pools.file(intake.read_again, start):
        pass


async def pour(site: Site, pieces: AsyncIterable[bytes], intake: Intake) -> None:
    """Write what comes, while there is room on the disk; the next piece is received as
    one is written."""
    loop = asyncio.get_running_loop()
    writing: asyncio.Future[None] = loop.create_future()
    writing.set_result(None)
    check_room(site)
    since_look = 0
    held: list[bytes] = []
    size = 0
    try:
        async for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size < PIECE:
                continue
            since_look += size
            if since_look >= _ROOM_EVERY:
                check_room(site)
                since_look = 0
            await writing
            writing = site.pools.file(intake.write, held)
            held, size = [], 0
        await writing
        await site.pools.file(intake.write, held)
    finally:
        writing.cancel()  # how the one that is at work ends does not matter


def check_room(site: Site, more: int = 2 * PIECE) -> None:
    """NoRoom when `more` bytes would not leave what is kept to finish with."""
    room = os.statvfs(site.root.uploads)
    if room.f_bavail * room.f_frsize < site.config.min_free_bytes + more:
        raise NoRoom(
            "there is no room on the disk for this attachment: free some, then send it again"
        )


def cannot_take(error: OSError) -> RQError:
    """Return what to tell a sender whose file the disk did not take."""
    if not is_no_room(error):
        return not_done(error)
    why = error.strerror or error
    return NoRoom(f"there is no room on the disk for this attachment: {why}")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
