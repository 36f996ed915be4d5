"""JSON files, read again only when they have changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rq import config
from rq.errors import BadConfig
from rq.words.nesting import Json


def look(path: str) -> tuple[int, ...] | None:
    """Return how a file looks: another when it was edited or replaced; None: it is not
    there. As `config.stamp`, of thousands in a pass."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_ino, info.st_size, info.st_ctime_ns, info.st_mode


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
