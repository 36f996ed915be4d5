"""Lock files: held as long as their descriptor is open, and by one process at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(path: Path) -> int | None:
    """Take the lock file `path`; None when another process holds it.

    The lock lives as long as the returned descriptor and is never inherited.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    return fd


def lock_waiting(path: Path) -> int:
    """Take the lock file `path`, waiting for it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def is_locked(path: Path) -> bool:
    """Return whether some process holds the lock file `path`."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
