"""Opens files below a directory: never through a link, never outside, never waiting.

A script's user may swap what it can write for a link, a fifo or a device at any moment. So
nothing is looked at by its name and opened then: it is opened first, and the descriptor
is looked at.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from rq.errors import NotPlain, is_busy
from rq.files import openat2

Shared = Callable[[int, os.stat_result], bool]  # whether a file may have more names
# What changes when anybody touches a file: its inode number, and when it was changed, in
# ns.
Stamp = tuple[int, int]

_PATH = getattr(os, "O_PATH", os.O_RDONLY)
_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | getattr(os, "O_NOCTTY", 0)
_NO_MOUNTS = openat2.INSIDE | openat2.NO_MOUNTS
_FILE_MODE = 0o640  # of a file that O_CREAT makes
_TRIES = 16  # of a name that somebody else makes again and again
_NO_NAMES = frozenset({"", ".", ".."})
_LINK = "it is a symbolic link, which RQ does not follow"


# ---- opening


@contextlib.contextmanager
def top(path: Path | str, flags: int = 0) -> Iterator[int]:
    """Hold the directory `path` open, which the caller trusts, for the others here;
    with O_NOFOLLOW if it trusts only the directories above."""
    fd = os.open(path, _PATH | _DIRECTORY | flags)
    try:
        yield fd
    finally:
        os.close(fd)


def open_any(path: str, flags: int, dir_fd: int, mode: int = 0) -> int:
    """Open `path` below `dir_fd`, whatever it is but a link; never waits for a fifo."""
    return _opened(path, flags | _ALWAYS, mode, dir_fd)


def _opened(path: str, flags: int, mode: int, dir_fd: int) -> int:
    try:
        if "/" not in path and path not in _NO_NAMES:
            # A single name can lead nowhere else, and costs no call through ctypes.
            return os.open(path, flags, mode, dir_fd=dir_fd)
        return _open(path, flags, mode, dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPlain(errno.ELOOP, _LINK, path) from None
        raise


def open_dir(path: str, dir_fd: int) -> int:
    """Open a directory, to list it."""
    return open_any(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd)


def open_dir_here(name: str, dir_fd: int) -> int:
    """As `open_dir`, but EXDEV where something is mounted: what is under a mount is not
    of this tree, though it may be of this file system."""
    flags = os.O_RDONLY | os.O_DIRECTORY | _ALWAYS
    try:
        if _open is not by_steps:
            return openat2.call(name, openat2.how(flags, 0, _NO_MOUNTS), dir_fd)
        fd = by_steps(name, flags, 0, dir_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotPlain(errno.ELOOP, _LINK, name) from None
        raise
    if os.fstat(fd).st_dev != os.fstat(dir_fd).st_dev:
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    return fd


def names(path: str, dir_fd: int) -> list[str]:
    """Return what lies in a directory; nothing where there is none."""
    try:
        fd = open_dir(path, dir_fd)
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        return []
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def open_place(path: str, dir_fd: int) -> int:
    """Open a directory to reach what is in it; its own mode may forbid to list it."""
    return _opened(path, _PATH | _DIRECTORY | os.O_NOFOLLOW, 0, dir_fd)


def open_plain(
    path: str, dir_fd: int, flags: int = os.O_RDONLY, shared: Shared | None = None
) -> int:
    """Open a regular file that has this one name; NotPlain says what else it is.

    `shared` is asked of a file that has more names.
    """
    fd = open_any(path, flags, dir_fd, _FILE_MODE)
    try:
        _check_plain(fd, path, dir_fd, shared)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create(path: str, dir_fd: int, mode: int) -> int:
    """Make a new file and open it for writing, in the place of what had its name.

    What lies there is never written to: it may be a second name of any file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for _ in range(_TRIES):
        try:
            return open_any(path, flags, dir_fd, mode)
        except FileExistsError:
            unlink(path, dir_fd)
    raise NotPlain(errno.EBUSY, "somebody else makes it again and again", path)


def open_named(path: str, flags: int) -> int:
    """Open a path that somebody else names: it may lead anywhere by links that lie on a
    disk, and nowhere by those of /proc, which lead to what this process has open."""
    if _open is by_steps:
        fd = os.open(path, flags)
    else:
        how = openat2.How(flags, 0, openat2.NO_MAGIC_LINKS)
        fd = openat2.call(path, how, openat2.HERE)
    with contextlib.suppress(FileNotFoundError):
        if os.fstat(fd).st_dev == os.stat("/proc/self").st_dev:
            os.close(fd)
            raise NotPlain(errno.EACCES, "it is a file of /proc", path)
    return fd


def unlink(path: str, dir_fd: int) -> None:
    """Remove a name; nothing happens when it is not there."""
    with (
        contextlib.suppress(FileNotFoundError),
        parent(path, dir_fd) as (place, name),
    ):
        os.unlink(name, dir_fd=place)


@contextlib.contextmanager
def parent(path: str, dir_fd: int) -> Iterator[tuple[int, str]]:
    """Give the directory that holds `path`, and the name in it."""
    head, _, name = path.rpartition("/")
    if not head:
        yield dir_fd, name
        return
    fd = open_place(head, dir_fd)
    try:
        yield fd, name
    finally:
        os.close(fd)


def read(path: str, dir_fd: int, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes."""
    return read_stamped(path, dir_fd, limit)[0]


def read_stamped(path: str, dir_fd: int, limit: int) -> tuple[bytes, Stamp]:
    """As `read`; also return the stamp that the file had before it was read."""
    fd = open_any(path, os.O_RDONLY, dir_fd)
    try:
        info = os.fstat(fd)
        return _held(fd, info, path, limit), stamp_of(info)
    finally:
        os.close(fd)


def stamp_of(info: os.stat_result) -> Stamp:
    return info.st_ino, info.st_ctime_ns


def content(fd: int, path: str, limit: int) -> bytes:
    """Return what an open file holds; NotPlain if it is no file, or too large."""
    return _held(fd, os.fstat(fd), path, limit)


def _held(fd: int, info: os.stat_result, path: str, limit: int) -> bytes:
    if not stat.S_ISREG(info.st_mode):
        raise _no_file(path)
    size = info.st_size
    if size > limit:
        text = f"it has {size} bytes, at most {limit} are read"
        raise NotPlain(errno.EFBIG, text, path)
    data = os.read(fd, size + 1)
    while len(data) < size and (more := os.read(fd, size)):
        data += more
    return data


# ---- what a descriptor is


def _check_plain(fd: int, path: str, dir_fd: int, shared: Shared | None) -> None:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        raise _no_file(path)
    if info.st_nlink > 1 and shared is not None and shared(fd, info):
        return
    if not _is_only_name(info, fd, path, dir_fd):
        names = max(info.st_nlink, 2)
        text = f"it has {names} names, which lets others write to it or read it"
        raise NotPlain(errno.EMLINK, text, path)


def _is_only_name(info: os.stat_result, fd: int, path: str, dir_fd: int) -> bool:
    """Whether `path` is the one name of the file that was opened by it.

    A second name may have been taken away between the opening and the look. The kernel
    counts a name less first and forgets it then, with its directory locked all the time;
    to list the directory waits for that. So a name that is there after the listing was
    there when names were counted. A file that has no name any more was replaced, before
    the first look or since.
    """
    if info.st_nlink != 1:
        return info.st_nlink == 0
    try:
        with parent(path, dir_fd) as (place, name):
            _wait_for_changes(place)
            named = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return _has_no_name(fd)
    except OSError as error:
        if is_busy(error):  # of its names nothing is known
            raise
        return False
    is_same = os.path.samestat(named, info) and named.st_nlink == 1
    return (is_same and not _lost_its_name(fd)) or _has_no_name(fd)


def _has_no_name(fd: int) -> bool:
    return os.fstat(fd).st_nlink == 0


def _wait_for_changes(place: int) -> None:
    """Return when no change of a directory's names is under way that had begun."""
    fd = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=place)
    try:
        with os.scandir(fd) as entries:
            next(entries, None)
    finally:
        os.close(fd)


def _lost_its_name(fd: int) -> bool:
    """Whether the name by which a file was opened is gone, be there a new one or not."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}").endswith(" (deleted)")
    except FileNotFoundError:
        return False  # no /proc: the name that was looked at is all that is known


def _no_file(path: str) -> NotPlain:
    return NotPlain(errno.EINVAL, "it is not a regular file", path)


# ---- the system call, and the way without it


def _by_openat2(path: str, flags: int, mode: int, dir_fd: int) -> int:
    how = openat2.how(flags, mode if flags & os.O_CREAT else 0)
    return openat2.call(path, how, dir_fd)


def by_steps(path: str, flags: int, mode: int, dir_fd: int) -> int:
    """Open a file as openat2 does, one directory after the other."""
    *heads, name = path.split("/")
    if not _NO_NAMES.isdisjoint((*heads, name)):
        raise NotPlain(errno.EXDEV, "it leads out of its directory", path)
    at = dir_fd
    try:
        for head in heads:
            below = os.open(head, _PATH | _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            if at != dir_fd:
                os.close(at)
            at = below
        return os.open(name, flags, mode, dir_fd=at)
    except OSError as error:
        error.filename = path
        raise
    finally:
        if at != dir_fd:
            os.close(at)


_open = _by_openat2 if openat2.is_known() else by_steps
