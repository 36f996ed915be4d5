"""Columns that were inferred of the first file of a queue, kept for all later ones.

They are written when a job has succeeded: what a bad first file had is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rq import config
from rq.config import files
from rq.errors import BadConfig, BadInput
from rq.spark import schemas
from rq.spark.attachments import File
from rq.spark.layouts import Layout
from rq.spark.remote import Allow


def of_queue(queue: str) -> Path:
    """Return the directory of those of a queue."""
    return config.find_root(None).spark / "schemas" / queue


class KeptSchemas:
    """Those of a queue; `place`: their directory, None if none are kept."""

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._inferred: dict[Path, dict[str, str]] = {}

    def of(self, layout: Layout, every: Sequence[File], may: Allow) -> Layout:
        """Return a layout with the columns that are kept for it, else with those of the
        first of some files. BadInput, BadConfig."""
        if self._place is None:
            return self._by_first(layout, every, may, Path())
        path = self._place / f"{layout.name}.json"
        kept = _read(path)
        if kept is None:
            return self._by_first(layout, every, may, path)
        return replace(layout, columns=schemas.parsed(kept), kept=str(path))

    def _by_first(
        self, layout: Layout, every: Sequence[File], may: Allow, path: Path
    ) -> Layout:
        for file in every:
            if columns := layout.inferred(file, may):
                text = schemas.described(columns)
                origin = {"msg_id": file.msg_id, "file": file.name}
                self._inferred[path] = {"schema": text, **origin}
                return replace(layout, columns=columns, kept=_where(path, file))
        raise BadInput(
            f"q.{layout.kind}: no file has a row by which columns could be inferred: say "
            "a schema"
        )

    def keep(self) -> None:
        """Keep what was inferred, unless another job was first."""
        for path, kept in self._inferred.items():
            if self._place is not None and not path.exists():
                files.make_dir(path.parent)
                files.write_state(path, kept)


def _where(path: Path, file: File) -> str:
    """Return what tells of the columns of a first file."""
    return str(path) if path.name else f"{file.name}, the first file"


def _read(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_bytes())["schema"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BadConfig(f"{path} is damaged ({error}): remove it") from None
