"""The directories of a table's files, which the values of its columns name, and what takes
their place.

Each commit that replaces the files of some values says of each when it was decided, as a
transaction of Delta: so a decision that is finished late does not take the place of a later
one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rq.spark.staging import NULL
from rq.words.nesting import Json

if TYPE_CHECKING:
    from deltalake import DeltaTable, Transaction
    from deltalake.transaction import RemoveAction

_PART = "rq replaced "


def notes(parts: Collection[str], decided: float) -> list[Transaction]:
    """Return what a commit says of the directories that it replaces; epoch seconds."""
    from deltalake import Transaction

    now, version = _moment(time.time()), _moment(decided)
    return [Transaction(_PART + part, version, now) for part in sorted(parts)]


def superseded(table: DeltaTable, parts: Collection[str], decided: float) -> set[str]:
    """Return those of directories that a later decision has replaced already."""
    last = {part: table.transaction_version(_PART + part) for part in parts}
    now = _moment(decided)
    return {
        part for part, moment in last.items() if moment is not None and moment > now
    }


def files(table: DeltaTable) -> dict[str, int]:
    """Return the files of a table, and how many rows each has."""
    import pyarrow as pa

    every = pa.table(table.get_add_actions()).select(["path", "num_records"])
    return {unquote(f["path"]): f["num_records"] or 0 for f in every.to_pylist()}


def removed(
    table: DeltaTable, parts: Collection[str], paths: Collection[str] = ()
) -> list[RemoveAction]:
    """Return what takes all files of some directories out of a table, and some files."""
    import pyarrow as pa
    from deltalake.transaction import RemoveAction

    if not parts and not paths:
        return []
    gone = [values(part) for part in parts]
    every = pa.table(table.get_add_actions()).select(
        ["path", "size_bytes", "partition"]
    )
    return [
        RemoveAction(
            path=unquote(file["path"]),
            data_change=True,
            deletion_timestamp=int(time.time() * 1000),
            size=file["size_bytes"],
            partition_values=texts,
        )
        for file in every.to_pylist()
        if (texts := _texts(file["partition"] or {})) in gone
        or unquote(file["path"]) in paths
    ]


def _texts(partition: Mapping[str, Json]) -> dict[str, str | None]:
    """Return the values of a partition as directories write them."""
    return {
        name: None if value is None else _word(value)
        for name, value in partition.items()
    }


def _word(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def values(folder: str) -> dict[str, str | None]:
    """Return the values that the directories of a file say.

    >>> values("day=2026-01-02/host=a%2Fb"), values("")
    ({'day': '2026-01-02', 'host': 'a/b'}, {})
    """
    pairs = (part.split("=", 1) for part in folder.split("/") if part)
    return {name: None if text == NULL else unquote(text) for name, text in pairs}


def _moment(decided: float) -> int:
    return int(decided * 1000)
