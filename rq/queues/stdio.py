"""`job/stdio.log`: all that scripts printed for a message, each attempt with a first
and a last line."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime

from rq.layout import STDIO_LOG


class StdioLog:
    """The log of one attempt, which its script itself appends to."""

    def __init__(self, directory: str, script: str) -> None:
        """Begin it; OSError when an earlier attempt has put something in its place."""
        self._path = f"{directory}/{STDIO_LOG}"
        self._head = open_log(self._path, os.O_CREAT)
        self._began = f"{_now()} - RQ START - {script}"
        try:
            self._at = os.lseek(self._head, 0, os.SEEK_END)
            os.write(self._head, _head(0, self._began))
            self.fd = open_log(self._path, os.O_APPEND)
        except OSError:
            os.close(self._head)
            raise

    def started(self, pid: int) -> None:
        """Fill in the pid; never in vain for the script, which runs by now."""
        with contextlib.suppress(OSError):
            os.pwrite(self._head, _head(pid, self._began), self._at)

    def close(self) -> None:
        """Close the descriptors: the script has its own."""
        os.close(self._head)
        os.close(self.fd)

    def end(self, last: str, wanted: bool) -> None:
        """Write the last line of the attempt, after the last answer."""
        with contextlib.suppress(OSError):
            fd = open_log(self._path, os.O_APPEND)
            try:
                os.write(fd, f"{last}\n".encode())
            finally:
                os.close(fd)


class PassedLog:
    """The log of one attempt whose output comes by a pipe; made when there is some."""

    def __init__(self, directory: Callable[[], str], pid: int, script: str) -> None:
        self._directory = directory  # makes it
        self._pid = pid
        self._began = f"{_now()} - RQ START - {script}"
        self._fd = -1
        self._failed = False

    def write(self, data: bytes) -> None:
        """Append output; what no log can be made for is lost, like on a full disk."""
        if self._fd < 0 and not self._failed:
            self._begin()
        with contextlib.suppress(OSError):
            while data and self._fd >= 0:
                data = data[os.write(self._fd, data) :]

    def _begin(self) -> None:
        try:
            path = f"{self._directory()}/{STDIO_LOG}"
            self._fd = open_log(path, os.O_APPEND | os.O_CREAT)
        except OSError:
            self._failed = True
            return
        self.write(_head(self._pid, self._began))

    def end(self, last: str, wanted: bool) -> None:
        """Write the last line; of an attempt that printed nothing only if `wanted`."""
        if wanted or self._fd >= 0:
            self.write(f"{last}\n".encode())
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def last_line(
    pid: int, exit_status: int | None, signal: str | None, took: float
) -> str:
    """Return the last line of an attempt."""
    how = f"exit {exit_status}" if signal is None else signal
    return f"{pid} - {_now()} - RQ END - {how} - {took:.3f} s"


def open_log(path: str, flags: int) -> int:
    """Open a log, which an earlier attempt may have replaced by anything."""
    # Non-blocking: opening a fifo would wait for a reader.
    flags |= os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o640)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def _head(pid: int, began: str) -> bytes:
    """Return the first lines of a run in its log, of one length for every pid: the pid
    is known only when the script may already have written behind them."""
    return f"\n{f'{pid} - {began}':<{len(began) + 10}}\n".encode()


def _now() -> str:
    return _moment(int(time.time()))


@functools.lru_cache(maxsize=2)
def _moment(seconds: int) -> str:
    when = datetime.fromtimestamp(seconds, UTC).astimezone()
    return when.strftime("%Y-%m-%d %H:%M:%S %z")
