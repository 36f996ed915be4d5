"""Copies, links and reads the content of attachments, and computes its digests."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat

from rq.files import beneath
from rq.files.durable.files import ATTACHMENT_MODE, FILE_MODE, unlink, write_all

_COPY_BYTES = 1024 * 1024
_FICLONE = 0x40049409


def copy_hashed(
    source: int, path: str, dir_fd: int, most: int | None = None
) -> tuple[str, str, int]:
    """Copy the open file `source` to a new file, durably; OSError if it has, or grows to,
    more than `most` bytes.

    Returns (SHA-256, MD5, bytes). The content is shared with the source where the
    file system can do that.
    """
    sha, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    fd = beneath.open_any(path, flags, dir_fd, FILE_MODE)
    try:
        cloned = _reflink(source, fd)
        while chunk := os.pread(fd if cloned else source, _COPY_BYTES, size):
            sha.update(chunk)
            md5.update(chunk)
            if not cloned:
                write_all(fd, chunk)
            size += len(chunk)
            if most is not None and size > most:
                raise OSError(errno.EFBIG, "it grows while it is copied", path)
        os.fchmod(fd, ATTACHMENT_MODE)
        os.fsync(fd)
    except OSError:
        unlink(path, dir_fd)
        raise
    finally:
        os.close(fd)
    return sha.hexdigest(), md5.hexdigest(), size


def take_in(source: int, path: str, dir_fd: int) -> bool:
    """Give the open file `source` the name `path`, durably; False when it cannot have
    one there: it lies on another file system, or has lost its last name."""
    try:
        with beneath.parent(path, dir_fd) as (place, name):
            os.link(f"/proc/self/fd/{source}", name, dst_dir_fd=place)
    except OSError:
        return False
    try:
        os.fchmod(source, ATTACHMENT_MODE)
        os.fsync(source)
    except OSError:
        unlink(path, dir_fd)
        raise
    return True


def is_ours(fd: int, info: os.stat_result) -> bool:
    """Whether a file with more names is an attachment that clones share: RQ made it,
    and nobody may write to it."""
    return stat.S_IMODE(info.st_mode) == ATTACHMENT_MODE and info.st_uid == os.geteuid()


def open_attachment(path: str, dir_fd: int, linked: bool = False) -> int:
    """Open an attachment: a regular file of one name, or one that clones share.

    `linked`: or one of the ancestor's, who gave the sender's own file a second name. In
    a directory of our user that is closed to others nobody else can have done it.
    """
    shared = _in_ours(path, dir_fd) if linked else is_ours
    return beneath.open_plain(path, dir_fd, shared=shared)


def _in_ours(path: str, dir_fd: int) -> beneath.Shared:
    with beneath.parent(path, dir_fd) as (place, _):
        info = os.fstat(place)
    closed = info.st_uid == os.geteuid() and not info.st_mode & stat.S_IWOTH
    return lambda fd, info: closed or is_ours(fd, info)


def is_own(fd: int) -> bool:
    """Whether an open file has one name only, and belongs to our user."""
    info = os.fstat(fd)
    return info.st_nlink == 1 and info.st_uid == os.geteuid()


def digests(path: str, dir_fd: int, linked: bool = False) -> tuple[str, str, int]:
    """Return (SHA-256, MD5, bytes) of a file; OSError if it grows meanwhile."""
    fd = open_attachment(path, dir_fd, linked)
    sha, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    try:
        whole = os.fstat(fd).st_size
        while chunk := os.read(fd, _COPY_BYTES):
            sha.update(chunk)
            md5.update(chunk)
            size += len(chunk)
            if size > whole:
                raise OSError(errno.EBUSY, "it grows while it is read", path)
    finally:
        os.close(fd)
    return sha.hexdigest(), md5.hexdigest(), size


def _reflink(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
