"""Large bodies, each in a synced file of its own: a line that held one would take the loop
for as long as the disk takes to write it.

A file is written and synced before the line that names it, and removed when the line that
lets its job go is durable. A start removes files that no line names.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary, finalize
from zlib import crc32

from rq import durable
from rq.broker.body import BodyFile, Place
from rq.broker.bounds import BODIES
from rq.errors import Damaged, cause_of
from rq.logs import fields
from rq.resp import Value

log = logging.getLogger(__name__)

LARGE = 512 * 1024  # bytes of a body, above which it gets a file


class Bodies:
    """The files of one node, in a directory of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = 0  # of the process: no earlier one has given the same names
        self._files: WeakValueDictionary[str, BodyFile] = WeakValueDictionary()
        self._numbers = itertools.count(1)
        self._unused: list[str] = []  # files that nothing refers to any more

    @property
    def live(self) -> bool:
        """Whether there are any."""
        return bool(self._files)

    def place(self, name: str, size: int, crc: int) -> Place:
        """Return the place that a line names."""
        file = self._files.get(name)
        if file is None:
            file = self._files[name] = BodyFile(name)
            finalize(file, self._unused.append, name).atexit = False
        return Place.of(file, size, crc)

    # ---- written

    def are_large(self, name: bytes, args: Sequence[bytes]) -> bool:
        """Whether a command has a body that gets a file."""
        where = BODIES.get(name)
        return where is not None and max(map(len, args[where]), default=0) > LARGE

    def keep(self, name: bytes, args: Sequence[bytes]) -> list[bytes]:
        """Write the large bodies of a command, durably; return its arguments with their
        places. Is called in a thread. OSError: the disk takes nothing more."""
        kept = list(args)
        for at in range(len(kept))[BODIES[name]]:
            if len(kept[at]) > LARGE:
                kept[at] = self._write(kept[at])
        durable.sync_path(self.path)
        durable.crash_point("body:synced")
        return kept

    def keep_body(self, body: bytes) -> Place:
        """Write a body that came from another node, durably. Is called in a thread.
        OSError: the disk takes nothing more."""
        place = self._write(body)
        durable.sync_path(self.path)
        durable.crash_point("body:synced")
        return place

    def _write(self, body: bytes) -> Place:
        name = f"{self.start}-{next(self._numbers)}"
        place = self.place(name, len(body), _crc(name, body))  # removed if that fails
        durable.write_new(str(self.path / name), body)
        durable.sync_path(self.path / name)
        durable.crash_point("body:written")
        return place

    # ---- read

    def read(self, value: Value) -> Value:
        """Return an answer with bodies in the place of places. Is called in a thread.
        OSError, Damaged: one cannot be read."""
        if isinstance(value, Place):
            return self.read_body(value)
        if isinstance(value, Mapping):
            return {name: self.read(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.read(each) for each in value]
        return value

    def read_body(self, place: Place) -> bytes:
        """Return the body at a place. Is called in a thread. OSError, Damaged: it cannot
        be read."""
        path = self.path / place.file.name
        body = path.read_bytes()
        if _crc(place.file.name, body) != place.crc:
            raise Damaged(f"{path} is not what was written to it")
        return body

    # ---- removed

    def take_unused(self) -> list[str]:
        """Return the files that nothing has referred to since the last time."""
        return [self._unused.pop() for _ in range(len(self._unused))]

    def remove(self, names: Sequence[str]) -> None:
        """Remove files that no line names any more."""
        for name in names:
            durable.unlink(str(self.path / name))

    def begin(self, start: int) -> None:
        """All lines are read: remove what none of them names."""
        self.start = start
        durable.make_dirs(str(self.path))
        durable.sync_path(self.path.parent)
        self.take_unused()
        for name in os.listdir(self.path):
            if name not in self._files:
                self._remove_odd(name)

    def _remove_odd(self, name: str) -> None:
        """Remove what no line names; what cannot be removed is in nobody's way."""
        try:
            self.remove([name])
        except OSError as error:
            path, why = self.path / name, cause_of(error)
            log.warning("this is no body, and stays: %s", fields(path=path, reason=why))


def has_places(value: object) -> bool:
    """Whether a body in an answer lies in a file."""
    if isinstance(value, list | tuple):
        return any(map(has_places, value))
    if isinstance(value, Mapping):
        return any(map(has_places, value.values()))
    return isinstance(value, Place)


def _crc(name: str, body: bytes) -> int:
    return crc32(body, crc32(name.encode()))
