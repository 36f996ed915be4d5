"""Holes in files: a part that takes no room on the disk, while all offsets stay."""

from __future__ import annotations

import contextlib
import ctypes
import os

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
BLOCK = 4096  # bytes; a part of one is not given back
_libc = ctypes.CDLL(None, use_errno=True)


def punch(fd: int, start: int, end: int) -> bool:
    """Give back the blocks of a file from `start` to `end`; return whether its file system
    can do that."""
    fallocate = getattr(_libc, "fallocate", None)
    if fallocate is None:
        return False
    length = ctypes.c_int64(end - start)
    mode = _KEEP_SIZE | _PUNCH_HOLE
    return bool(fallocate(fd, mode, ctypes.c_int64(start), length) == 0)


def next_data(fd: int, at: int) -> int:
    """Return where, from `at` on, a file holds something that was written; where holes are
    not told apart, `at`."""
    with contextlib.suppress(OSError):  # ENXIO: nothing more, or no such call
        return os.lseek(fd, at, os.SEEK_DATA)
    return at


def next_hole(fd: int, at: int) -> int:
    """Return where the next hole of a file begins, from `at` on: at its end at last."""
    with contextlib.suppress(OSError):
        return os.lseek(fd, at, os.SEEK_HOLE)
    return os.fstat(fd).st_size
