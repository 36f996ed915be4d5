"""Keeps the head and the tail of what an attempt prints.

The script writes into the file itself, and nothing may hinder it. So while it runs the
middle becomes a hole: the disk has room again, and a reader of the end goes on as before.
When it has ended, the tail is moved behind the head.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from rq.proc import holes

MOST_TAIL = 16 * 1024 * 1024  # bytes: they are moved while others wait
AT_ONCE = 128 * 1024 * 1024  # bytes that are given back in one go: some 20 ms
WORTH = 1024 * 1024  # bytes: less is not given back at once


@dataclass(slots=True)
class LogLimit:
    """How much is kept of the output of one attempt."""

    most: int  # bytes
    begins: int  # where in its file
    _hole_to: int = 0

    @property
    def _tail(self) -> int:
        return min(self.most // 2, MOST_TAIL)

    @property
    def _head_ends(self) -> int:
        return self.begins + self.most - self._tail

    def thin(self, fd: int, size: int) -> bool:
        """Give back the middle of a file that is open for writing and has so many bytes;
        False: nothing could be given back."""
        start = max(_up(self._head_ends), self._hole_to)
        end = min(_down(size - self._tail), start + AT_ONCE)
        if end - start >= WORTH and holes.punch(fd, start, end):
            self._hole_to = end
            return True
        return False

    def is_worth(self, size: int) -> bool:
        """Whether `thin` would do something."""
        return size - self._tail - max(self._head_ends, self._hole_to) > 2 * WORTH

    def cut(self, fd: int) -> None:
        """Take the middle out of a file that is open for reading and writing; nothing more
        of the attempt is written meanwhile."""
        size = os.fstat(fd).st_size
        missing = size - self.begins - self.most
        if missing <= 0:
            return
        mark = b"\n[%d bytes are left out here: log_bytes is %d]\n" % (
            missing,
            self.most,
        )
        at = _written(fd, mark, self._head_ends)
        left = size - self._tail
        while left < size:
            data = os.pread(fd, min(WORTH, size - left), left)
            if not data:
                break
            at = _written(fd, data, at)
            left += len(data)
        os.ftruncate(fd, at)


def _up(offset: int) -> int:
    return -(-offset // holes.BLOCK) * holes.BLOCK


def _down(offset: int) -> int:
    return offset // holes.BLOCK * holes.BLOCK


def _written(fd: int, data: bytes, at: int) -> int:
    """Write all of it at a place in a file; return where it ends."""
    view = memoryview(data)
    while view:
        number = os.pwrite(fd, view, at)
        at, view = at + number, view[number:]
    return at
