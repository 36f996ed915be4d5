"""A file that grows by durable lines, behind a first line that names it.

Each line begins with its checksum, so that what a cut write has left is no line. After a
failed write or sync it takes none any more: its owner begins another. So it is when the
file was removed or replaced: what is written then, no start would find.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from errno import ESTALE
from pathlib import Path
from zlib import crc32

import orjson

from rq.files import durable

_DIGITS = 8


class Appended:
    """The file, as its only writer has it open."""

    def __init__(self, path: Path, name: str) -> None:
        """Begin it anew, durably."""
        self._path = path
        self.size = write(path, name, ())
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    @classmethod
    def going_on(cls, path: Path, size: int) -> Appended:
        """Go on behind the first `size` bytes of a file that is there, which `scan` has
        found whole; what stands behind them, a cut write has left."""
        if os.stat(path).st_size != size:
            durable.cut(str(path), size)
        appended = cls.__new__(cls)
        appended._path, appended.size = path, size
        appended._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        # A kill may have left lines that are not on disk yet; they are believed now.
        durable.sync_open(appended._fd)
        return appended

    def append(self, values: Iterable[object]) -> None:
        """Append a line for each value; durable when it returns. OSError: it is closed,
        and some of them may be in it."""
        data = b"".join(map(_line, values))
        durable.crash_point("append:before-write")
        try:
            if not os.path.samestat(os.fstat(self._fd), os.stat(self._path)):
                raise OSError(ESTALE, "another file lies there now", str(self._path))
            durable.write_at(self._fd, data, self.size)
            durable.sync_data(self._fd)
        except OSError:
            self.close()
            raise
        self.size += len(data)

    def close(self) -> None:
        os.close(self._fd)


def write(path: Path, name: str, values: Iterable[object]) -> int:
    """Write a file of that name with a line for each value, durably, in place of what is
    there; return its bytes."""
    data = b"".join(map(_line, (name, *values)))
    durable.write_durable(path, data)
    return len(data)


def scan(path: Path) -> Iterator[tuple[object, int]]:
    """Give what each line holds, the name of the file with them, and where it ends. A
    damaged line holds None: those behind it are given all the same. OSError when the
    file cannot be read now."""
    end = 0
    with path.open("rb") as file:
        for line in file:
            end += len(line)
            yield (_value(line[:-1]) if line.endswith(b"\n") else None), end


def read(path: Path, name: str) -> Iterator[object]:
    """Give what was appended to the file of that name, up to where a write was cut;
    nothing if there is none. OSError when it cannot be read now."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    if not lines or _value(lines[0]) != name:
        return
    for line in lines[1:]:
        value = _value(line)
        if value is None:
            return
        yield value


def _line(value: object) -> bytes:
    body = orjson.dumps(value)
    return b"%08x%b\n" % (crc32(body), body)


def _value(line: bytes) -> object:
    """Return what a line holds; None if it is not whole."""
    body = line[_DIGITS:]
    if line[:_DIGITS] != b"%08x" % crc32(body):
        return None
    return orjson.loads(body)
