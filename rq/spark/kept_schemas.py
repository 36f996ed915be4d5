"""Columns that were inferred of the first file of a queue, kept for all later ones.

They are written when a job has succeeded: what a bad first file had is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rq import config
from rq.config import files
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.spark import schemas
from rq.spark.attachments import File
from rq.spark.layouts import Layout
from rq.spark.remote import Allow
from rq.spark.schemas import Column

SCHEMAS = "schemas"


def of_queue(queue: str) -> Path:
    """Return the directory of those of a queue."""
    return _place(config.find_root(None), queue)


def _place(root: Root, queue: str) -> Path:
    return root.spark / SCHEMAS / queue


# ---- for people


def every(root: Root, queue: str | None) -> list[Mapping[str, str]]:
    """Return what is kept for a queue, or for all: what is damaged says so as `schema`."""
    places = [_place(root, queue)] if queue else sorted(_place(root, "").glob("*"))
    return [
        {"queue": place.name, "name": name, **_view(place / f"{name}.json")}
        for place in places
        for name in _names(place)
    ]


def _names(place: Path) -> list[str]:
    return sorted(path.name.removesuffix(".json") for path in place.glob("*.json"))


def _view(path: Path) -> dict[str, str]:
    try:
        kept = json.loads(path.read_bytes())
        return {name: str(kept[name]) for name in ("schema", "file", "msg_id")}
    except (OSError, ValueError, KeyError, TypeError):
        return {"schema": "damaged: forget it", "file": "", "msg_id": ""}


def columns(root: Root, queue: str, name: str) -> tuple[Column, ...]:
    """Return the columns that are kept under a name; BadInput, BadConfig."""
    kept = _read(_path(root, queue, name))
    assert kept is not None, "_path has seen it"
    return schemas.parsed(kept)


def forget(root: Root, queue: str, name: str | None) -> list[str]:
    """Forget what is kept under a name, or all of a queue; return the names. BadInput."""
    gone = _names(_place(root, queue)) if name is None else [name]
    for each in gone:
        files.remove_link(_path(root, queue, each))
    return gone


def _path(root: Root, queue: str, name: str) -> Path:
    place = _place(root, queue)
    if name not in (there := _names(place)):  # so that it leads to no other place
        these = ", ".join(there) or "there are none"
        raise BadInput(f"{queue} has no columns {name!r:.60}: {these}")
    return place / f"{name}.json"


# ---- for jobs


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
