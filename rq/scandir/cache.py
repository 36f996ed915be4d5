"""JSON files, read again only when they have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rq import config
from rq.errors import BadConfig


class JsonCache:
    """Reads JSON files again only when they have changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[config.Stamp, dict[str, Any]]] = {}

    def read(self, path: Path) -> dict[str, Any]:
        """Return the object in a file; BadConfig as `config.read_json`."""
        stamp = config.stamp(path)
        if stamp is None:
            self._known.pop(path, None)
            return config.read_json(path)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = self._known[path] = (stamp, config.read_json(path))
        return known[1]

    def read_or_empty(self, path: Path) -> dict[str, Any]:
        try:
            return self.read(path)
        except BadConfig:
            return {}
