"""The log line of every process: `LEVEL time pid name: text key=value`, rotated."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import logging.handlers
import os
import re
import sys
import time
from pathlib import Path

from rq.words import visible

ROTATE_BYTES = 16 * 1024 * 1024
KEEP = 4
_PLAIN = re.compile(r'[^ "=\n\r\t]+')


class _Line(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, name: str) -> None:
        super().__init__(
            f"%(levelname).1s %(asctime)s.%(msecs)03dZ %(process)d {name}: %(message)s",
            "%Y-%m-%dT%H:%M:%S",
        )
        logging.logProcesses = False  # else it asks the kernel for the pid of each line
        # No line tells of these: as the manual of the library says, it need not find out.
        logging.logThreads = logging.logMultiprocessing = False
        logging._srcfile = None  # where it was called
        self._last = -1, ""
        self._is_of()
        os.register_at_fork(after_in_child=self._is_of)

    def _is_of(self) -> None:
        self._pid = os.getpid()

    def formatTime(  # noqa: N802 - so the library calls it
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """As the library; many lines are of the same second."""
        second, moment = self._last
        if second != int(record.created):
            moment = super().formatTime(record, datefmt)
            self._last = int(record.created), moment
        return moment

    def format(self, record: logging.LogRecord) -> str:
        """Return a record; a line of it that a stranger's text began looks like none."""
        record.process = self._pid
        return visible.text(super().format(record)).replace("\n", "\n    ")


class _Rotated(logging.handlers.RotatingFileHandler):
    """Counts the bytes that it writes: to ask the kernel how many there are takes four
    calls a line, and the formatter a second turn."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=ROTATE_BYTES, backupCount=KEEP)
        self._size = path.stat().st_size

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator
            size = len(line.encode(errors="backslashreplace"))
            self._size += size
            if self._size > self.maxBytes:
                self.doRollover()
                self._size = size
            if self.stream is None:  # it was closed
                self.stream = self._open()
            self.stream.write(line)
            self.flush()
        except Exception:  # noqa: BLE001 - as in every handler: logging ends no program
            self.handleError(record)


def open_log(name: str, path: Path | None, level: int = logging.INFO) -> None:
    """Send this process's log to `path`, rotated, or to standard error."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        path.parent.mkdir(mode=0o750, exist_ok=True)
        handler = _Rotated(path)
    handler.setFormatter(_Line(name))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def append(path: Path, line: str) -> None:
    """Append a line to a log that several processes write, and rotate it when it is full.

    Ensures that lines do not tear: each is one write at the end of the file.
    """
    path.parent.mkdir(mode=0o750, exist_ok=True)
    fd = open_end(path)
    try:
        if os.fstat(fd).st_size >= ROTATE_BYTES:
            _rotate_alone(path, fd)
            os.close(fd)
            fd = open_end(path)
        os.write(fd, line.encode("utf-8", "backslashreplace") + b"\n")
    finally:
        os.close(fd)


def open_end(path: Path) -> int:
    """Return a descriptor that appends to a log, which is made if there is none."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    # Neither a link nor a fifo that somebody put in its place is written to.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o640)


def _rotate_alone(path: Path, fd: int) -> None:
    """Rotate while no other process does. The lock is a file of its own: whoever may
    read the log could hold the log's, and all who write would wait."""
    lock = _turn(path.with_name(f".{path.name}.lock"))
    try:
        _rotate(path, fd)
    finally:
        os.close(lock)


def _turn(path: Path) -> int:
    """Wait for the lock of the file that is called `path` once it is ours."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        lock = os.open(path, flags, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        os.close(lock)


def _rotate(path: Path, fd: int) -> None:
    """Rename the full log that `fd` has open, unless another process has done it."""
    try:
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            return
    except FileNotFoundError:  # the next log has not been begun yet
        return
    for number in range(KEEP, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
        if newer.exists():
            newer.rename(older)


def fields(**values: object) -> str:
    """Return `key=value` pairs for the end of a log line.

    >>> fields(msg_id="20260102.0304.05.006.7", reason="no such file")
    'msg_id=20260102.0304.05.006.7 reason="no such file"'
    """
    return " ".join([f"{name}={_value(value)}" for name, value in values.items()])


def _value(value: object) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text) and text.isprintable():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in escaped) + '"'
