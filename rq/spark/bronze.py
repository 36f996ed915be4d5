"""Where the history lies under ROOT/spark/history, and which Parquet of it counts.

`NUMBER/bronze/date=D/batch=N/` is what batch N of the stream brought for a day; a replay
replaces it. `batch=cN` holds all batches up to N, merged: it counts from when
`current.json` names it. Readers take the directories that `batches` gives.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rq import config
from rq.errors import BadConfig
from rq.layout import Root

_FIRST = "0001"
_DATE, _BATCH, _MERGED = "date=", "batch=", "c"


@dataclass(frozen=True, slots=True)
class Current:
    """What `current.json` says."""

    number: str = _FIRST  # of the directory; another one when a checkpoint was lost
    merged: dict[str, int] = field(default_factory=dict)  # date: up to which batch

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "merged": self.merged}

    def with_merged(self, date: str, upto: int) -> Current:
        return replace(self, merged={**self.merged, date: upto})


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of the history."""

    path: Path

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def current_file(self) -> Path:
        return self.path / "current.json"

    def current(self) -> Current:
        """Return what counts; the first of all when nothing was written yet."""
        try:
            found = config.read_json(self.current_file)
        except BadConfig:
            return Current()
        return Current(str(found["number"]), dict(found["merged"]))

    def checkpoint(self, number: str) -> Path:
        return self.path / number / "checkpoint"

    def bronze(self, number: str) -> Path:
        return self.path / number / "bronze"

    def gold(self, number: str) -> Path:
        return self.path / number / "gold"


def place(root: Root) -> Place:
    return Place(root.spark / "history")


@dataclass(frozen=True, slots=True)
class Batch:
    """A directory of Parquet files of one day."""

    path: Path
    number: int
    merged: bool  # it holds all batches up to `number`


def dates(bronze: Path) -> list[str]:
    """Return the days of which there is anything."""
    return sorted(name.removeprefix(_DATE) for name in _names(bronze, _DATE))


def batches(bronze: Path, date: str, current: Current) -> list[Batch]:
    """Return the directories that make up a day."""
    upto = current.merged.get(date, -1)
    return [
        one
        for one in every_batch(bronze, date)
        if (one.number == upto if one.merged else one.number > upto)
    ]


def every_batch(bronze: Path, date: str) -> list[Batch]:
    """Return all directories of a day, those that no longer count, too."""
    day = bronze / f"{_DATE}{date}"
    found = []
    for name in _names(day, _BATCH):
        number = name.removeprefix(_BATCH)
        merged = number.startswith(_MERGED)
        if number.removeprefix(_MERGED).isdecimal():
            number = number.removeprefix(_MERGED)
            found.append(Batch(day / name, int(number), merged))
    return sorted(found, key=lambda one: (one.number, one.merged))


def merged_path(bronze: Path, date: str, upto: int) -> Path:
    return bronze / f"{_DATE}{date}" / f"{_BATCH}{_MERGED}{upto}"


def _names(path: Path, start: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name.startswith(start)]
    except FileNotFoundError:
        return []
