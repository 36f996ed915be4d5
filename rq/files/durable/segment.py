"""The file of a segment: filled with zeros beforehand, written in place, cut at its end."""

from __future__ import annotations

import errno
import os

from rq.files.durable.crash_points import crash_point
from rq.files.durable.files import FILE_MODE, unlink

_ZEROS_BYTES = 1024 * 1024


def zero_filled(path: str, size: int, dir_fd: int | None = None) -> int:
    """Return the descriptor of a new durable file of `size` zeros.

    Written zeros, not holes: a later fdatasync then touches no metadata.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    fd = os.open(path, flags, FILE_MODE, dir_fd=dir_fd)
    try:
        zeros = bytes(min(size, _ZEROS_BYTES))
        for at in range(0, size, len(zeros)):
            write_at(fd, zeros[: size - at], at)
        os.fsync(fd)
    except OSError:
        os.close(fd)
        unlink(path, dir_fd)
        raise
    return fd


def write_at(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`; a short write is an error."""
    written = os.pwrite(fd, data, offset)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"wrote {written} of {len(data)} bytes")


def sync_data(fd: int) -> None:
    """fdatasync; after an error the descriptor must never be synced again."""
    crash_point("journal:before-sync")
    os.fdatasync(fd)
    crash_point("journal:after-sync")


def cut(path: str, size: int, dir_fd: int | None = None) -> None:
    """Cut a file to `size` bytes, durably."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)
