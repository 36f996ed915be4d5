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
        head = _line(name)
        self._path = path
        durable.write_durable(path, head)
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self.size = len(head)

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
