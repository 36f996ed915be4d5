"""Bodies in files, synced before anything names them.

A large one has a file of its own: a line that held it would take the loop for as long as
the disk takes to write it. Many small ones share a file when one command has too many for
a line, and when memory is short (`away`). A file is removed when the line that lets the
last of its jobs go is durable. A start removes files that no line names.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from weakref import WeakValueDictionary, finalize
from zlib import crc32

from rq.broker.state.body import BodyFile, Place
from rq.errors import Damaged, cause_of
from rq.files import durable
from rq.logs import fields
from rq.resp import Value

log = logging.getLogger(__name__)

LARGE = 512 * 1024  # bytes of a body, above which it gets a file
LINE = 2 * 1024 * 1024  # of the bodies of one command, above which no line holds them
SMALLEST = 1024  # bytes of a body for which a place in a file saves memory
_OPEN = 64  # files that are open for one answer


class Bodies:
    """The files of one node, in a directory of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = _start(path)
        self._files: WeakValueDictionary[str, BodyFile] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._unused: list[str] = []  # files that nothing refers to any more

    @property
    def live(self) -> bool:
        """Whether there are any."""
        return bool(self._files)

    def place(self, name: str, size: int, crc: int, offset: int) -> Place:
        """Return the place that a line names."""
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = BodyFile(name)
            finalize(file, self._unused.append, name).atexit = False
        return Place.of(file, size, crc, offset)

    # ---- written

    def keep(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Write the bodies of a command that are large, or too many for a line, durably;
        return all, as places where they are written. Is called in a thread. OSError: the
        disk takes nothing more."""
        kept = list(bodies)
        for at, body in enumerate(kept):
            if len(body) > LARGE:
                (kept[at],) = self._write([body])
        if sum(map(len, kept)) > LINE:
            small = [at for at, body in enumerate(kept) if len(body) >= SMALLEST]
            places = self._write([kept[at] for at in small])
            for at, place in zip(small, places, strict=True):
                kept[at] = place
        durable.sync_path(self.path)
        durable.crash_point("body:synced")
        return kept

    def keep_body(self, body: bytes) -> Place:
        """Write a body that came from another node, durably. Is called in a thread.
        OSError: the disk takes nothing more."""
        (place,) = self.keep_together([body])
        return place

    def keep_together(self, bodies: Sequence[bytes]) -> list[Place]:
        """Write bodies into one file, durably; return their places. May be called in a
        thread. OSError: the disk takes nothing more."""
        places = self._write(bodies)
        durable.sync_path(self.path)
        durable.crash_point("body:synced")
        return places

    def _write(self, bodies: Sequence[bytes]) -> list[Place]:
        name = f"{self._start}-{next(self._numbers)}"
        places, offset = [], 0
        for body in bodies:  # removed if that fails
            crc = _crc(name, offset, body)
            places.append(self.place(name, len(body), crc, offset))
            offset += len(body)
        durable.write_new(str(self.path / name), b"".join(bodies))
        durable.sync_path(self.path / name)
        durable.crash_point("body:written")
        return places

    # ---- read

    def read(self, value: Value) -> Value:
        """Return an answer with bodies in the place of places. Is called in a thread.
        OSError, Damaged: one cannot be read."""
        bodies = self._read(list(_places(value)))
        return _filled(value, bodies)

    def read_body(self, place: Place) -> bytes:
        """Return the body at a place. Is called in a thread. OSError, Damaged: it cannot
        be read."""
        return next(self._read([place]))

    def _read(self, places: Sequence[Place]) -> Iterator[bytes]:
        """Give the bodies of places, each file opened as seldom as may be."""
        for at in range(0, len(places), _OPEN):
            fds: dict[str, int] = {}
            with ExitStack() as stack:
                for place in places[at : at + _OPEN]:
                    name = place.file.name
                    if name not in fds:
                        fds[name] = os.open(
                            self.path / name, os.O_RDONLY | os.O_CLOEXEC
                        )
                        stack.callback(os.close, fds[name])
                    yield self._body(fds[name], place)

    def _body(self, fd: int, place: Place) -> bytes:
        name = place.file.name
        body = os.pread(fd, place.size, place.offset)
        if place.crc not in _crcs(name, place.offset, body):
            raise Damaged(f"{self.path / name} is not what was written to it")
        return body

    # ---- removed

    def take_unused(self) -> list[str]:
        """Return the files that nothing has referred to since the last time."""
        return [self._unused.pop() for _ in range(len(self._unused))]

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no line names any more."""
        for name in names:
            durable.unlink(str(self.path / name))

    def make(self) -> None:
        """Make the directory, durably."""
        durable.make_dirs(str(self.path))
        durable.sync_path(self.path.parent)

    def begin(self) -> None:
        """All lines are read: remove what none of them names."""
        self.take_unused()
        for name in os.listdir(self.path):
            if name not in self._files:
                self._remove_odd(name)

    def _remove_odd(self, name: str) -> None:
        """Remove what no line names; what cannot be removed does no harm."""
        try:
            self.remove([name])
        except OSError as error:
            path, why = self.path / name, cause_of(error)
            log.warning("this is no body, and stays: %s", fields(path=path, reason=why))


def weight(bodies: Sequence[bytes]) -> tuple[bool, int]:
    """Return whether a body of a command gets a file, or all are too many for a line; and
    how many of their bytes will be in memory."""
    size = sum(map(len, bodies))
    if size <= LARGE or (size <= LINE and max(map(len, bodies)) <= LARGE):
        return False, size  # as nearly always
    kept = [size for size in map(len, bodies) if size <= LARGE]
    if sum(kept) > LINE:
        kept = [size for size in kept if size < SMALLEST]
    return True, sum(kept)


def has_places(value: object) -> bool:
    """Whether a body in an answer lies in a file."""
    if isinstance(value, list | tuple):
        return any(map(has_places, value))
    if isinstance(value, Mapping):
        return any(map(has_places, value.values()))
    return isinstance(value, Place)


def _places(value: Value) -> Iterator[Place]:
    """Give the places in an answer, in their order."""
    if isinstance(value, Place):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _places(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _places(each)


def _filled(value: Value, bodies: Iterator[bytes]) -> Value:
    """Return an answer with the next bodies in the place of its places."""
    if isinstance(value, Place):
        return next(bodies)
    if isinstance(value, Mapping):
        return {name: _filled(each, bodies) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(each, bodies) for each in value]
    return value


def _start(path: Path) -> int:
    """Return what the names of this process begin with: no file that is there has it."""
    names = os.listdir(path) if path.is_dir() else []
    starts = [
        int(start) for name in names if (start := name.partition("-")[0]).isdigit()
    ]
    return max([int(time.time()), *(start + 1 for start in starts)])


def _crcs(name: str, offset: int, body: bytes) -> Iterator[int]:
    """Give the checksums that a body may have: without its place in its file, if it was
    written when one body had a file for itself."""
    yield _crc(name, offset, body)
    if not offset:
        yield crc32(body, crc32(name.encode()))


def _crc(name: str, offset: int, body: bytes) -> int:
    return crc32(body, crc32(f"{name} {offset}".encode()))
