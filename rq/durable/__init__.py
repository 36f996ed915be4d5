"""The only fsync, rename, link and unlink of RQ; imported by `spool` and `config` alone.

Paths may be relative to a directory descriptor, so that an owner keeps working in its
own queue whatever is renamed around it. `checkpoint` is called at named points; tests
make it kill the process there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

DIR_MODE = 0o750
FILE_MODE = 0o640
ATTACHMENT_MODE = 0o440
_ZEROS_BYTES = 1024 * 1024


def _crash_point(wanted: str) -> Callable[[str], None]:
    """Return a hook that kills this process at the Nth passing of a named point."""
    name, _, nth = wanted.partition("#")
    left = [int(nth or 1)]

    def passing(point: str) -> None:
        if point == name:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return passing


def _pass(point: str) -> None:
    """Go on: no crash is wanted."""


checkpoint: Callable[[str], None] = (
    _crash_point(os.environ["RQ_CRASH_AT"]) if os.environ.get("RQ_CRASH_AT") else _pass
)


def arm(point: str) -> None:
    """Let this process die at `point`, or `point#N` for the Nth time (tests only)."""
    global checkpoint
    checkpoint = _crash_point(point) if point else _pass


# ---- files and directories, made visible but not yet durable


def make_dir(path: str, dir_fd: int | None = None) -> None:
    """Make a directory; FileExistsError if there is one."""
    os.mkdir(path, DIR_MODE, dir_fd=dir_fd)


def make_dirs(path: str, dir_fd: int | None = None) -> None:
    """Make a directory and what is missing above it."""
    try:
        os.mkdir(path, DIR_MODE, dir_fd=dir_fd)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_dirs(os.path.dirname(path), dir_fd)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, DIR_MODE, dir_fd=dir_fd)


def write_new(
    path: str, data: bytes, dir_fd: int | None = None, mode: int = FILE_MODE
) -> None:
    """Write a file, over an old one if there is one; a crash may leave it torn."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    # Non-blocking: a script may have put a fifo in its place.
    fd = os.open(path, flags | os.O_NONBLOCK, mode, dir_fd=dir_fd)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def replace(path: str, data: bytes, dir_fd: int | None = None) -> None:
    """Write a file so that a reader sees the old or the new one, never half."""
    write_new(f"{path}.tmp", data, dir_fd)
    checkpoint("write:before-rename")
    os.rename(f"{path}.tmp", path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    checkpoint("write:after-rename")


def move(source: str, target: str, dir_fd: int | None = None) -> None:
    """Rename a folder, making the directories above the target when they are missing."""
    checkpoint("move:before-rename")
    try:
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileNotFoundError:
        make_dirs(os.path.dirname(target), dir_fd)
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    checkpoint("move:after-rename")


def link(source: str, target: str, dir_fd: int | None = None) -> None:
    """Give a file a second name."""
    os.link(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)


def unlink(path: str, dir_fd: int | None = None) -> None:
    """Remove a name; nothing happens when it is not there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)


def remove_dir(path: str, dir_fd: int | None = None) -> bool:
    """Remove a directory if it is empty; return whether it is gone."""
    try:
        os.rmdir(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EBUSY):
            return False
        raise
    return True


def remove_tree(path: str, dir_fd: int | None = None) -> None:
    """Remove a directory and all in it, never following a symlink; none is fine."""
    while True:
        try:
            _rmtree(path, dir_fd)
        except FileNotFoundError:
            # Of something in it, when a script that lives on removes files there too.
            if _is(stat.S_IFDIR, path, dir_fd):
                continue
        return


def _rmtree(path: str, dir_fd: int | None) -> None:
    try:
        shutil.rmtree(path, dir_fd=dir_fd)
    except PermissionError:
        _open_up(path, dir_fd)
        shutil.rmtree(path, dir_fd=dir_fd)


def _open_up(path: str, dir_fd: int | None) -> None:
    """Let every directory of a tree be listed and emptied by its owner, which is us."""
    os.chmod(path, DIR_MODE, dir_fd=dir_fd)
    for _, folders, _, fd in os.fwalk(path, dir_fd=dir_fd):
        for name in folders:
            if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                os.chmod(name, DIR_MODE, dir_fd=fd)


def clear_way(path: str, names: Iterable[str], dir_fd: int | None = None) -> None:
    """Let a folder be written to and moved again, whatever a script made of it.

    Its mode is put right, and what is no file goes from the places of `names`.
    """
    if not _is(stat.S_IFDIR, path, dir_fd):
        unlink(path, dir_fd)
        return
    os.chmod(path, DIR_MODE, dir_fd=dir_fd)
    for name in names:
        for one in (f"{path}/{name}", f"{path}/{name}.tmp"):
            if _is(stat.S_IFDIR, one, dir_fd):
                remove_tree(one, dir_fd)
            elif not _is(stat.S_IFREG, one, dir_fd):
                unlink(one, dir_fd)


def _is(kind: int, path: str, dir_fd: int | None) -> bool:
    try:
        found = os.lstat(path, dir_fd=dir_fd).st_mode
    except OSError:
        return False
    return stat.S_IFMT(found) == kind


def allow(path: str, mode: int, dir_fd: int | None = None) -> None:
    """Set the mode of a file."""
    os.chmod(path, mode, dir_fd=dir_fd)


# ---- durable: after these return, a power cut does not undo them


def write_durable(path: Path, data: bytes, mode: int = FILE_MODE) -> None:
    """Replace a file durably: tmp, fsync, rename, fsync of the directory."""
    tmp = path.with_name(f".{path.name}.tmp")
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    checkpoint("durable:before-rename")
    os.rename(tmp, path)
    checkpoint("durable:after-rename")
    sync_path(path.parent)


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
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd)
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


# ---- journal segments


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
    checkpoint("journal:before-sync")
    os.fdatasync(fd)
    checkpoint("journal:after-sync")


def cut(path: str, size: int, dir_fd: int | None = None) -> None:
    """Cut a file to `size` bytes, durably."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        os.ftruncate(fd, size)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` where the descriptor stands."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
