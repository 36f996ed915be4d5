"""`job/stdio.log`: all that scripts printed for a message, each attempt with a first
and a last line."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

from rq.errors import NotPlain
from rq.files import beneath
from rq.layout import STDIO_LOG
from rq.proc.descriptors import close_all
from rq.scripts.log_limit import LogLimit
from rq.scripts.run_as import Ids
from rq.words import visible

_TAIL = 8192  # bytes of a log in which its last line is looked for
_WIDTH = 200  # characters of that line
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_CLOEXEC


SetAside = Callable[[int], None]  # gives the log in an open directory another name


class StdioLog:
    """The log of one attempt, which its script itself appends to."""

    def __init__(
        self,
        dir_fd: int,
        path: str,
        directory: int,
        script: str,
        set_aside: SetAside,
        ids: Ids | None = None,
    ) -> None:
        """Begin it in the open `directory`, which it closes: `path` below `dir_fd`.
        `set_aside` and `ids` as in `open_log`.
        OSError when an earlier attempt has put something in its place."""
        self._dir_fd, self._path = dir_fd, f"{path}/{STDIO_LOG}"
        self.directory = directory
        self._end: int | None = None
        self._began = f"{_now()} - RQ START - {script}"
        head = _head(0, self._began)
        self.printed: tuple[int, int] | None = None  # from, to; known at its end
        self._limit: LogLimit | None = None
        opened = [directory]
        try:
            self._head, is_new = open_log(directory, self._path, set_aside, ids=ids)
            opened.append(self._head)
            self._file = os.fstat(self._head)
            self._at = 0 if is_new else self._file.st_size
            # Where in the file the output of this attempt begins.
            self.output_at = self._at + len(head)
            os.pwrite(self._head, head, self._at)
            self.fd = self._appending(directory)
        except BaseException as error:
            for fd in opened:
                os.close(fd)
            if isinstance(error, OSError):
                error.filename = self._path  # a write does not tell whose folder it is
            raise

    def _again(
        self, path: str, dir_fd: int, flags: int = os.O_WRONLY | os.O_APPEND
    ) -> tuple[int, int]:
        """Open it once more, and tell its size; NotPlain when another file has its name."""
        fd = beneath.open_any(path, flags, dir_fd)
        info = os.fstat(fd)
        if not os.path.samestat(info, self._file):
            os.close(fd)
            raise NotPlain(errno.EINVAL, "another file is in its place", self._path)
        return fd, info.st_size

    def _appending(self, directory: int) -> int:
        """Open for the script what is open already; by its name where there is no /proc."""
        try:
            return os.open(f"/proc/self/fd/{self._head}", _APPEND)
        except OSError:
            return self._again(STDIO_LOG, directory)[0]

    def keep(self, most: int | None) -> None:
        """Keep so many bytes of the output of this attempt; None: all of it."""
        self._limit = None if most is None else LogLimit(most, self.output_at)

    def thin(self) -> bool:
        """Give back the middle of what is too much, while the script writes on; return
        whether there is more of it."""
        size = self.size()
        if self._limit is None or not self._limit.is_worth(size):
            return False
        with contextlib.suppress(OSError):
            fd, size = self._again(self._path, self._dir_fd)
            try:
                self._limit.thin(fd, size)
            finally:
                os.close(fd)
        return self._limit.is_worth(size)

    def _cut(self) -> None:
        if self._limit is None:
            return
        fd, _ = self._again(self._path, self._dir_fd, os.O_RDWR)
        try:
            self._limit.cut(fd)
        finally:
            os.close(fd)

    def size(self) -> int:
        """Return how many bytes its file has; 0 when it cannot be seen."""
        with contextlib.suppress(OSError):
            return os.stat(
                self._path, dir_fd=self._dir_fd, follow_symlinks=False
            ).st_size
        return 0

    def printed_at(self) -> float | None:
        """Return when something was printed last, in epoch seconds; None: nothing was."""
        with contextlib.suppress(OSError):
            seen = os.stat(self._path, dir_fd=self._dir_fd, follow_symlinks=False)
            return seen.st_mtime if seen.st_size > self.output_at else None
        return None

    @property
    def part(self) -> list[int | None] | None:
        """Return where in the file this attempt begins and ends; None: not yet."""
        return [self._at, self._end]

    def started(self, pid: int) -> None:
        """Write the pid into the first line; ignore an error, for the script runs."""
        with contextlib.suppress(OSError):
            os.pwrite(self._head, _head(pid, self._began), self._at)

    def close(self, *others: int) -> None:
        """Close the descriptors, and `others` with them: the script has its own, and runs
        by now."""
        close_all((self.directory, self._head, self.fd, *others))

    def last_printed(self) -> str:
        """Return the last line that this attempt has printed, as a status shows it; "" if
        there is none, or the log cannot be read."""
        with contextlib.suppress(OSError):
            fd, size = self._again(self._path, self._dir_fd, os.O_RDONLY)
            try:
                at = max(self.output_at, size - _TAIL)
                written = os.pread(fd, _TAIL, at)
            finally:
                os.close(fd)
            return visible.last_line(written.decode(errors="replace"), _WIDTH)
        return ""

    def end(self, last: str, wanted: bool) -> None:
        """Write the last line of the attempt, after the last answer."""
        with contextlib.suppress(OSError):
            self._cut()
        with contextlib.suppress(OSError):
            fd, size = self._again(self._path, self._dir_fd)
            try:
                if size > self.output_at:
                    self.printed = self.output_at, size
                # What a child that may stay writes in between comes after it, then.
                self._end = size + os.write(fd, f"{last}\n".encode())
            finally:
                os.close(fd)


class PassedLog:
    """The log of one attempt whose output comes by a pipe; made when there is some."""

    def __init__(
        self,
        directory: Callable[[], int],
        pid: int,
        script: str,
        set_aside: SetAside,
        ids: Ids | None = None,
    ) -> None:
        """`directory` makes and opens it; `set_aside` and `ids` as in `open_log`."""
        self._directory = directory
        self._set_aside = set_aside
        self._ids = ids
        self._pid = pid
        self._began = f"{_now()} - RQ START - {script}"
        self._fd = -1
        self._at = 0  # where the output begins
        self._failed = False
        self._size = 0
        self._printed: float | None = None  # when; epoch seconds
        self.printed: tuple[int, int] | None = None  # from, to; known at its end
        self._from: int | None = None  # where its part begins, and ends
        self._end: int | None = None
        self._most: int | None = None
        self._limit: LogLimit | None = None

    def keep(self, most: int | None) -> None:
        """Keep so many bytes of the output of this attempt; None: all of it."""
        self._most = most

    def thin(self) -> bool:
        """Give back the middle of what is too much; that never is more than one go."""
        if self._limit is not None and self._fd >= 0:
            size = os.fstat(self._fd).st_size
            if self._limit.is_worth(size):
                self._limit.thin(self._fd, size)
        return False

    def size(self) -> int:
        """Return how many bytes were printed."""
        return self._size

    def printed_at(self) -> float | None:
        """Return when something was printed last, in epoch seconds; None: nothing was."""
        return self._printed

    @property
    def output_at(self) -> int:
        """Return where in a file that this attempt makes its output begins."""
        return len(_head(self._pid, self._began))

    @property
    def part(self) -> list[int | None] | None:
        """Return where in the file this attempt begins and ends; None: nowhere."""
        return None if self._from is None else [self._from, self._end]

    def write(self, data: bytes) -> None:
        """Append output; what no log can be made for is lost, like on a full disk."""
        self._size += len(data)
        self._printed = time.time()
        if self._fd < 0 and not self._failed:
            self._begin()
        with contextlib.suppress(OSError):
            while data and self._fd >= 0:
                data = data[os.write(self._fd, data) :]
            self.thin()

    def _begin(self) -> None:
        try:
            directory = self._directory()
            try:
                self._fd, _ = open_log(
                    directory, STDIO_LOG, self._set_aside, os.O_APPEND, self._ids
                )
            finally:
                os.close(directory)
        except OSError:
            self._failed = True
            return
        self._from = os.fstat(self._fd).st_size
        self.write(_head(self._pid, self._began))
        self._at = os.fstat(self._fd).st_size
        if self._most is not None:
            self._limit = LogLimit(self._most, self._at)

    def _cut(self) -> None:
        if self._limit is None or self._fd < 0:
            return
        fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            self._limit.cut(fd)
        finally:
            os.close(fd)

    def end(self, last: str, wanted: bool) -> None:
        """Write the last line; of an attempt that printed nothing only if `wanted`."""
        with contextlib.suppress(OSError):
            self._cut()
        if self._fd >= 0:
            self.printed = self._at, os.fstat(self._fd).st_size
        if wanted or self._fd >= 0:
            self.write(f"{last}\n".encode())
            if self._fd >= 0:
                self._end = os.lseek(self._fd, 0, os.SEEK_CUR)
        self.close()

    def close(self) -> None:
        """Write nothing more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def last_line(
    pid: int, exit_status: int | None, signal: str | None, took: float
) -> str:
    """Return the last line of an attempt."""
    how = f"exit {exit_status}" if signal is None else signal
    return ended(pid, how, took)


def ended(pid: int, how: str, took: float) -> str:
    """Return the last line of an attempt that ended in a way of its own."""
    return f"{pid} - {_now()} - RQ END - {how} - {took:.3f} s"


def open_log(
    directory: int,
    path: str,
    set_aside: SetAside,
    flags: int = 0,
    ids: Ids | None = None,
) -> tuple[int, bool]:
    """Open the log in a directory, and tell whether it is new; `path` is for errors.

    What an earlier attempt has left is gone on with if it is a plain file of that one
    name. The log of a batch, which other messages have too, is `set_aside` first, and so
    is, for a script that runs as user and group `ids`, a file of any other user: in its
    own directory it may put what it cannot read.
    """
    flags |= os.O_WRONLY
    try:
        with contextlib.suppress(FileExistsError):
            new = flags | os.O_CREAT | os.O_EXCL
            return _new_log(directory, new, ids), True
        try:
            fd = beneath.open_plain(STDIO_LOG, directory, flags)
            if ids is None or os.fstat(fd).st_uid == ids[0]:
                return fd, False
            os.close(fd)
        except NotPlain as error:
            if error.errno != errno.EMLINK:
                raise
        set_aside(directory)
        return _new_log(directory, new, ids), True
    except OSError as error:
        error.filename = path
        raise


def _new_log(directory: int, flags: int, ids: Ids | None) -> int:
    fd = beneath.open_any(STDIO_LOG, flags, directory, 0o640)
    if ids is not None:
        os.fchown(fd, *ids)
    return fd


def began_elsewhere(by: str, since: float) -> bytes:
    """Return the first lines of an attempt that a holder elsewhere has begun, at `since`
    in epoch seconds: the same ones at each call, and as long in every time zone."""
    return _head(0, f"{_moment(int(since))} - RQ START - leased to {by}")


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
