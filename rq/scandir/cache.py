"""JSON files, read again only when they have changed."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

from rq import config
from rq.errors import BadConfig
from rq.words.nesting import Json

_LOOK = struct.Struct("=4QI")
_ALL = 2**64 - 1  # a person may date a file before 1677, or after 2262


def look(path: str) -> bytes | None:
    """Return how a file looks: another when it was edited or replaced; None: it is not
    there. As `config.stamp`, of thousands in a pass, whose looks are all kept."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    times = info.st_mtime_ns & _ALL, info.st_ctime_ns & _ALL
    return _LOOK.pack(*times, info.st_ino, info.st_size, info.st_mode)


def is_file(looks: bytes) -> bool:
    """Whether what looks so is a plain file."""
    return stat.S_ISREG(_LOOK.unpack(looks)[-1])


class JsonCache:
    """Reads JSON files again only when they have changed."""

    def __init__(self) -> None:
        self._cached: dict[Path, tuple[config.Stamp, Mapping[str, Json]]] = {}

    def read(self, path: Path) -> Mapping[str, Json]:
        """Return the object in a file; BadConfig as `config.read_json`."""
        stamp = config.stamp(path)
        if stamp is None:
            self._cached.pop(path, None)
            return config.read_json(path)
        entry = self._cached.get(path)
        if entry is None or entry[0] != stamp:
            entry = self._cached[path] = (stamp, config.read_json(path))
        return entry[1]

    def read_or_empty(self, path: Path) -> Mapping[str, Json]:
        try:
            return self.read(path)
        except BadConfig:
            return {}
