"""What attachments hold: copied, linked or read, with its digests on the way."""

from __future__ import annotations

import fcntl
import hashlib
import os

from rq import durable
from rq.durable import ATTACHMENT_MODE, FILE_MODE

_COPY_BYTES = 1024 * 1024
_FICLONE = 0x40049409


def copy_hashed(
    source: int, path: str, dir_fd: int | None = None
) -> tuple[str, str, int]:
    """Copy the open file `source` to a new file, durably.

    Returns (SHA-256, MD5, bytes). The content is shared with the source where the
    file system can do that.
    """
    sha, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, FILE_MODE, dir_fd=dir_fd)
    try:
        cloned = _reflink(source, fd)
        while chunk := os.pread(fd if cloned else source, _COPY_BYTES, size):
            sha.update(chunk)
            md5.update(chunk)
            if not cloned:
                durable.write_all(fd, chunk)
            size += len(chunk)
        os.fchmod(fd, ATTACHMENT_MODE)
        os.fsync(fd)
    except OSError:
        durable.unlink(path, dir_fd)
        raise
    finally:
        os.close(fd)
    return sha.hexdigest(), md5.hexdigest(), size


def take_in(source: int, path: str, dir_fd: int) -> bool:
    """Give the open file `source` the name `path`, durably; False when it cannot have
    one there: it lies on another file system, or has lost its last name."""
    try:
        os.link(f"/proc/self/fd/{source}", path, dst_dir_fd=dir_fd)
    except OSError:
        return False
    try:
        os.fchmod(source, ATTACHMENT_MODE)
        os.fsync(source)
    except OSError:
        durable.unlink(path, dir_fd)
        raise
    return True


def digests(path: str, dir_fd: int | None = None) -> tuple[str, str, int]:
    """Return (SHA-256, MD5, bytes) of a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd)
    sha, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    try:
        while chunk := os.read(fd, _COPY_BYTES):
            sha.update(chunk)
            md5.update(chunk)
            size += len(chunk)
    finally:
        os.close(fd)
    return sha.hexdigest(), md5.hexdigest(), size


def _reflink(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
