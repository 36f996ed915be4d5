"""Durable: after these return, a power cut does not undo them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from rq.files import beneath
from rq.files.durable.crash_points import crash_point
from rq.files.durable.files import FILE_MODE, open_plain, unlink, write_all


def write_durable(path: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """Replace a file durably: tmp, fsync, rename, fsync of the directory."""
    with beneath.top(path.parent) as place:
        replace_durable(path.name, data, place, mode)


def replace_durable(path: str, data: bytes, dir_fd: int, mode: int = FILE_MODE) -> None:
    """As `write_durable`, below a directory that others may write to."""
    replace_with(path, lambda _: data, dir_fd, mode)


def replace_with(
    path: str, content: Callable[[int], bytes], dir_fd: int, mode: int = FILE_MODE
) -> None:
    """As `replace_durable`; the content may depend on the new file, given as its
    descriptor."""
    with beneath.parent(path, dir_fd) as (place, name):
        tmp = f".{name}.tmp"
        fd = beneath.create(tmp, place, mode)
        try:
            write_all(fd, content(fd))
            os.fsync(fd)
        finally:
            os.close(fd)
        crash_point("durable:before-rename")
        os.rename(tmp, name, src_dir_fd=place, dst_dir_fd=place)
        crash_point("durable:after-rename")
        _sync_opened(os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=place))


def rename_durable(source: Path, target: Path) -> None:
    """Rename, and sync the directories of both names."""
    os.rename(source, target)
    sync_path(target.parent)
    if source.parent != target.parent:
        sync_path(source.parent)


def touch_durable(path: Path) -> None:
    """Make an empty file if there is none."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    sync_path(path.parent)


def unlink_durable(path: Path) -> None:
    """Remove a name for good; nothing happens when it is not there."""
    unlink(str(path))
    sync_path(path.parent)


def symlink_durable(target: str, path: Path) -> None:
    """Make the symlink `path`, in the place of an old one if there is one."""
    tmp = path.with_name(f".{path.name}.tmp")
    unlink(str(tmp))
    os.symlink(target, tmp)
    os.rename(tmp, path)
    sync_path(path.parent)


def sync_path(path: Path | str, dir_fd: int | None = None) -> None:
    """fsync a file or a directory."""
    _sync_opened(open_plain(str(path), os.O_RDONLY, dir_fd))


def sync_open(fd: int) -> None:
    """fsync an open file: an error of what was written through it is told here."""
    os.fsync(fd)


def _sync_opened(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_files(folder: str, names: Iterable[str], dir_fd: int | None = None) -> None:
    """fsync files of `folder`, the folder, and the directory it lies in."""
    for name in names:
        sync_path(f"{folder}/{name}", dir_fd)
    sync_path(folder, dir_fd)
    sync_path(os.path.dirname(folder), dir_fd)


_libc = ctypes.CDLL(None, use_errno=True)


def sync_filesystem(fd: int) -> None:
    """syncfs(2) on a descriptor held since start: it reports every write-back error
    that the file system had since then, where a fresh descriptor may hear nothing."""
    if not hasattr(_libc, "syncfs"):
        os.sync()
        return
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
