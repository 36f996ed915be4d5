"""The Delta tables of a root, as people and programs look at them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.spark import (
    delta,
    delta_goals,
    delta_schemas,
    delta_store,
    table_places,
    writes,
)
from rq.spark.targets import one_line
from rq.tables import Column, Held, Name

if TYPE_CHECKING:
    from deltalake import DeltaTable

_IDS = "rq_ids"
_AHEAD = 86400.0  # seconds by which the clock of another host may be ahead


class Summary(TypedDict):
    """A table in a list."""

    table: str  # QUEUE/NAME
    version: int
    files: int
    rows: int
    bytes: int
    written: float | None  # when its last version was made; None: it says no such time


class Version(TypedDict):
    """What a commit did."""

    version: int
    time: float | None
    operation: str
    queue: str | None
    batch: str | None
    messages: int | None
    ids: list[str]
    day: str | None  # that was made again, and
    backfill: str | None  # by which command


def demand() -> None:
    """Raise BadConfig when what reads tables is not installed."""
    if not delta_goals.is_installed():
        raise BadConfig(delta_goals.MISSING)


def summary(root: Root, table: Name) -> Summary:
    """Return the figures of a table."""
    lake = load(root, table)
    files = _files(lake)
    [newest] = _history(lake, 1)
    return {
        "table": table.text,
        "version": lake.version(),
        "files": len(files),
        "rows": sum(file["num_records"] or 0 for file in files),
        "bytes": sum(file["size_bytes"] for file in files),
        "written": _time(newest),
    }


def load(root: Root, table: Name) -> DeltaTable:
    """Return a table as it is now; BadInput if there is none."""
    lake = delta.load(table_places.of(root, table))
    if lake is None:
        raise BadInput(
            f"there is no table {table.text}; `rq spark table ls` lists them"
        )
    return lake


def _files(lake: DeltaTable) -> list[Mapping[str, Any]]:
    actions = lake.get_add_actions(flatten=True)
    columns = {
        field: actions.column(field).to_pylist()
        for field in ("size_bytes", "num_records")
    }
    return [
        {"size_bytes": size, "num_records": rows}
        for size, rows in zip(
            columns["size_bytes"], columns["num_records"], strict=True
        )
    ]


def versions(lake: DeltaTable, limit: int) -> list[Version]:
    """Return the last versions of a table, the newest first."""
    return [_version(entry) for entry in _history(lake, limit)]


def _history(lake: DeltaTable, limit: int) -> list[dict[str, Any]]:
    from deltalake.exceptions import DeltaError

    try:
        with delta_store.translated(lake.table_uri):
            entries: list[dict[str, Any]] = lake.history(limit)
    except DeltaError as error:  # what another program says of a commit
        raise BadInput(
            f"the versions of the table cannot be read: {one_line(str(error))}"
        ) from None
    return entries


def _time(entry: Mapping[str, Any]) -> float | None:
    """Return when a commit was made; None if it says nothing that can be, for any program
    may have written it."""
    said = entry.get("timestamp", -1) / 1000
    return said if 0 <= said <= time.time() + _AHEAD else None


def _version(entry: Mapping[str, Any]) -> Version:
    return {
        "version": entry["version"],
        "time": _time(entry),
        "operation": entry.get("operation", ""),
        "queue": entry.get("rq_queue"),
        "batch": entry.get("rq_batch"),
        "messages": entry.get("rq_messages"),
        "ids": list(entry.get(_IDS, ())),
        "day": entry.get("rq_day"),
        "backfill": entry.get("rq_backfill"),
    }


def columns(lake: DeltaTable) -> list[Column]:
    """Return the columns of a table, with their types, and whether they part it."""
    by = lake.metadata().partition_columns
    kinds = delta_schemas.columns(lake.schema().to_json())
    return [{"column": n, "type": kind, "by": n in by} for n, kind in kinds.items()]


def held(root: Root) -> Iterator[Held]:
    """Give the batches whose rows are decided and in no table yet."""
    for path in sorted((root.spark / "writes").glob("*/*/list.json")):
        own = path.parent
        if (own / "done").exists():
            continue
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            yield _held(own, path)


def _held(own: Path, path: Path) -> Held:
    entry: Held = {
        "queue": own.parent.name,
        "key": own.name,
        "tables": [],
        "time": path.stat().st_mtime,
        "messages": [],
        "why": f"{path} is damaged",
    }
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        decided = json.loads(path.read_bytes())
        every = [t["plan"]["name"] for t in decided["tables"] if t.get("plan")]
        messages = list(decided.get("messages", ()))
        about: Held = {**entry, "tables": every, "time": decided["time"]}
        return {**about, "messages": messages, "why": _why(own)}
    return entry


def _why(own: Path) -> str:
    try:
        return str(json.loads((own / writes.HELD).read_bytes())["why"])
    except OSError:
        return "one of its messages must run again to finish it"
