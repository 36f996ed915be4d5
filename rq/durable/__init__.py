"""The only fsync, rename, link and unlink of RQ; imported by `spool` and `config` alone.

Paths may be relative to a directory descriptor, so that an owner keeps working in its
own queue whatever is renamed around it. `crash_point` is called at named points; tests
make it kill the process there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rq import beneath
from rq.durable import removal
from rq.errors import NotPlain

DIR_MODE = 0o750
FILE_MODE = 0o640
ATTACHMENT_MODE = 0o440
_ZEROS_BYTES = 1024 * 1024


def _killer(wanted: str) -> Callable[[str], None]:
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


crash_point: Callable[[str], None] = (
    _killer(os.environ["RQ_CRASH_AT"]) if os.environ.get("RQ_CRASH_AT") else _pass
)


def arm(point: str) -> None:
    """Let this process die at `point`, or `point#N` for the Nth time (tests only)."""
    global crash_point
    crash_point = _killer(point) if point else _pass


# ---- files and directories, made visible but not yet durable


def make_dir(path: str, dir_fd: int | None = None) -> None:
    """Make a directory; FileExistsError if there is one."""
    os.mkdir(path, DIR_MODE, dir_fd=dir_fd)


def make_dirs(path: str, dir_fd: int | None = None) -> None:
    """Make a directory and what is missing above it."""
    if not path:
        return
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
    """Write a new file, in the place of an old one if there is one; a crash may leave
    it torn."""
    if dir_fd is None:
        with _parent(path, None) as (place, name):
            _write(name, data, place, mode)
    else:
        _write(path, data, dir_fd, mode)


def _write(path: str, data: bytes, dir_fd: int, mode: int = FILE_MODE) -> None:
    fd = beneath.create(path, dir_fd, mode)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def replace(path: str, data: bytes, dir_fd: int | None = None) -> None:
    """Write a file so that a reader sees the old or the new one, never half."""
    with _parent(path, dir_fd) as (place, name):
        _write(f"{name}.tmp", data, place)
        crash_point("write:before-rename")
        os.rename(f"{name}.tmp", name, src_dir_fd=place, dst_dir_fd=place)
    crash_point("write:after-rename")


@contextlib.contextmanager
def _parent(path: str, dir_fd: int | None) -> Iterator[tuple[int, str]]:
    """Give the directory that holds `path`, and the name in it. A whole path is of our
    own making; what is below a descriptor, others may have touched."""
    if dir_fd is not None:
        with beneath.parent(path, dir_fd) as found:
            yield found
        return
    head, name = os.path.split(path)
    with beneath.top(head or ".") as place:
        yield place, name


def _open(path: str, flags: int, dir_fd: int | None) -> int:
    if dir_fd is not None:
        return beneath.open_any(path, flags, dir_fd)
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def move(source: str, target: str, dir_fd: int | None = None) -> None:
    """Rename a folder, making the directories above the target when they are missing."""
    crash_point("move:before-rename")
    try:
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except FileNotFoundError:
        make_dirs(os.path.dirname(target), dir_fd)
        os.rename(source, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    crash_point("move:after-rename")


def link(source: str, target: str, dir_fd: int, to_dir_fd: int) -> None:
    """Give a file of one open directory a name in another."""
    os.link(
        source,
        target,
        src_dir_fd=dir_fd,
        dst_dir_fd=to_dir_fd,
        follow_symlinks=False,
    )


def unlink(path: str, dir_fd: int | None = None) -> None:
    """Remove a name; nothing happens when it is not there."""
    with contextlib.suppress(FileNotFoundError), _parent(path, dir_fd) as (place, name):
        os.unlink(name, dir_fd=place)


def claim(path: str) -> bool:
    """Remove a name; return whether it was this call that removed it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


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
    """Remove whatever has a name, with all that is below it; none is fine."""
    with contextlib.suppress(FileNotFoundError), _parent(path, dir_fd) as (place, name):
        removal.remove(name, place)


def clear_way(path: str, names: Iterable[str], dir_fd: int) -> None:
    """Let a folder be written to and moved again, whatever a script made of it.

    Its mode is put right, and what is no file goes from the places of `names`.
    """
    with beneath.parent(path, dir_fd) as (place, name):
        try:
            allow(name, DIR_MODE, place)
            folder = beneath.open_dir(name, place)
        except (NotPlain, NotADirectoryError):
            unlink(name, place)
            return
    try:
        for name in names:
            for one in (name, f"{name}.tmp"):
                if not _is_plain(one, folder):
                    remove_tree(one, folder)
    finally:
        os.close(folder)


def _is_plain(name: str, place: int) -> bool:
    try:
        info = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:  # what cannot be looked at is not for removal
        return False
    return stat.S_ISREG(info.st_mode) and info.st_nlink == 1


def allow(path: str, mode: int, dir_fd: int | None = None) -> None:
    """Set the mode of a file or a directory; of a file with more names, of none."""
    try:
        fd = _open(path, os.O_RDONLY, dir_fd)
    except PermissionError:
        with _parent(path, dir_fd) as (place, name):
            removal.open_up(name, place, mode)
        return
    try:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink > 1:
            raise NotPlain(errno.EMLINK, f"it has {info.st_nlink} names", path)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


# ---- durable: after these return, a power cut does not undo them


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
    _sync_opened(_open(str(path), os.O_RDONLY, dir_fd))


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


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` where the descriptor stands."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
