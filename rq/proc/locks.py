"""Lock files: held as long as their descriptor is open, and by one process at a time.

A process that can open a file, if only to read it, can hold its lock for ever. So only
their owner can open lock files.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path

_MODE = 0o600
_DYING = 2.0  # seconds that a process that was killed may take to end
_LOOK = 0.01  # seconds between two tries


def lock(path: Path) -> int | None:
    """Take the lock file `path`; None when another process holds it.

    The lock lives as long as the returned descriptor and is never inherited.
    """
    return _taken(path, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_slot(path: Path) -> int | None:
    """As `lock`, a file that root may have given to another user: it is taken back. RQ
    never moves it alone, so a count of its names is enough to see it in its place."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            held = _lock_now(fd)
            info = os.fstat(fd)
        except BaseException:
            os.close(fd)
            raise
        if held and info.st_nlink:
            _own(fd, info)
            return fd
        os.close(fd)
        if info.st_nlink:
            return None


def is_slot_taken(path: Path) -> bool:
    """As `is_locked`, of a file that RQ neither moves nor removes."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock_now(fd)
    finally:
        os.close(fd)


def _lock_now(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own(fd: int, info: os.stat_result) -> None:
    """Take a file back from those who could open it beside us."""
    if info.st_uid != 0 and os.geteuid() == 0:
        os.fchown(fd, 0, os.getegid())
        os.fchmod(fd, _MODE)
    elif stat.S_IMODE(info.st_mode) != _MODE and info.st_uid == os.geteuid():
        os.fchmod(fd, _MODE)


def lock_soon(path: Path) -> int | None:
    """Take the lock file `path`, which a process that was just killed may hold for a
    moment: until all its threads, and a child that is about to run another program, have
    ended. None when it is held for longer."""
    until = time.monotonic() + _DYING
    while (fd := lock(path)) is None and time.monotonic() < until:
        time.sleep(_LOOK)
    return fd


def lock_waiting(path: Path) -> int:
    """Take the lock file `path`, waiting for it."""
    fd = _taken(path, fcntl.LOCK_EX)
    assert fd is not None  # it was waited for
    return fd


def lock_shared(path: Path) -> int:
    """Take the lock file `path` beside others who do so, waiting for the one that has it
    alone; FileNotFoundError when its directory is gone."""
    fd = _taken(path, fcntl.LOCK_SH)
    assert fd is not None  # it was waited for
    return fd


def _taken(path: Path, how: int) -> int | None:
    """Open and lock the file that has the name `path` when both are done: a lock on a file
    that was removed or moved meanwhile would keep out no later process."""
    while True:
        fd, info = _opened(path)
        try:
            fcntl.flock(fd, how)
            held = True
        except BlockingIOError:
            held = False
        except BaseException:
            os.close(fd)
            raise
        is_it = _is_called(info, path)
        if held and is_it:
            return fd
        os.close(fd)
        if is_it:
            return None


def is_at(fd: int, path: Path) -> bool:
    """Whether an open lock file still has the name `path`. Else it keeps out nothing: the
    next process makes and takes another."""
    return _is_called(os.fstat(fd), path)


def _is_called(info: os.stat_result, path: Path) -> bool:
    try:
        return os.path.samestat(info, os.stat(path))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _opened(path: Path) -> tuple[int, os.stat_result]:
    """Open a lock file, made when there is none; one that an older RQ has made with
    rights of others loses them. Also return what it is."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    info = os.fstat(fd)
    if stat.S_IMODE(info.st_mode) != _MODE and info.st_uid == os.geteuid():
        os.fchmod(fd, _MODE)
    return fd, info


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock file `path`."""
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = False
        except BlockingIOError:
            held = True
        finally:
            is_it = is_at(fd, path)
            os.close(fd)
        if is_it:
            return held
