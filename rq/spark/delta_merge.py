"""Rows that change those of a table with the same key, by delta-rs' merge.

What a batch has written stays where no reader looks; delta-rs reads it, and writes the files
of the table that change, so these are not the batch's own and nothing here has synced them:
`sync` does, `is_whole` tells whether a power cut came before, and `take_back` undoes that.

A merge that changes nothing would be no commit, and could come again when the table is another
one: so the batch is noted in one without files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rq.config import files
from rq.errors import BadInput
from rq.spark.delta_goals import Plan
from rq.spark.targets import Target, one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable

MOST = 1024**3  # bytes of a table, and
MOST_OF_BATCH = 128 * 1024**2  # those of a batch, which memory holds
_END = b"PAR1"  # of each whole file of Parquet


def demand_small(name: str, table: DeltaTable) -> None:
    """Raise BadInput if a table is too large to be merged into."""
    size = sum(_sizes(table).values())
    if size > MOST:
        raise BadInput(
            f"q.table: {name} has {_mib(size)}, and merge is for tables of "
            f'{_mib(MOST)} at most: part it, and use mode="replace_by"'
        )


def demand_small_batch(name: str, size: int) -> None:
    """Raise BadInput if the files of a batch are too large to be merged at once."""
    if size > MOST_OF_BATCH:
        raise BadInput(
            f"q.table: {name}: this batch has {_mib(size)}, and merge takes "
            f"{_mib(MOST_OF_BATCH)} at most at a time: send fewer rows in a message"
        )


def _mib(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"


def merge(
    table: DeltaTable,
    place: Target,
    paths: Sequence[str],
    plan: Plan,
    properties: CommitProperties,
) -> None:
    """Let rows of files change those of a table with their key, or be new ones."""
    rows = _rows(place, paths)
    version = table.version()
    merger = table.merge(
        rows,
        " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in plan.key),
        source_alias="s",
        target_alias="t",
        commit_properties=properties,
    )
    columns = {_quoted(name): f"s.{_quoted(name)}" for name in rows.column_names}
    merger = merger.when_matched_update(columns, predicate=_later(plan.order))
    merger.when_not_matched_insert(columns).execute()
    if table.version() == version:
        table.create_write_transaction(
            [], "append", table.schema(), [], commit_properties=properties
        )


def _later(order: str) -> str | None:
    """Return that a row is not older than that of the table."""
    name = _quoted(order)
    return f"t.{name} IS NULL OR s.{name} >= t.{name}" if order else None


def _rows(place: Target, paths: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import parquet

    return pa.concat_tables(
        parquet.read_table(f"{place.path}/{path}", filesystem=place.system)
        for path in paths
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ---- what delta-rs has written


def sync(table: DeltaTable, place: Target, since: float) -> None:
    """Let files of a table that are as new as that outlast a power cut."""
    for path in _paths(table, place):
        if path.stat().st_mtime >= since:
            files.sync(path)
            files.sync(path.parent)


def is_whole(table: DeltaTable, place: Target) -> bool:
    """Whether the files of a table are as its log says."""
    said = _sizes(table)
    for path, size in zip(_paths(table, place), said.values(), strict=True):
        try:
            with path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size != size:
                    return False
                stream.seek(-len(_END), os.SEEK_END)
                if stream.read() != _END:
                    return False
        except OSError:
            return False
    return True


def take_back(table: DeltaTable, properties: CommitProperties) -> bool:
    """Bring back the version before the last one, by a commit; False if another one came
    between. BadInput: files of it are gone."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        table.restore(table.version() - 1, commit_properties=properties)
    except CommitFailedError:
        return False
    except (DeltaError, OSError) as error:
        raise BadInput(
            f"a merge whose files are torn: {one_line(str(error))}"
        ) from None
    return True


def _paths(table: DeltaTable, place: Target) -> Iterator[Path]:
    for name in _sizes(table):
        yield Path(place.path, unquote(name))


def _sizes(table: DeltaTable) -> dict[str, int]:
    import pyarrow as pa

    every = pa.table(table.get_add_actions()).select(["path", "size_bytes"])
    return {file["path"]: file["size_bytes"] for file in every.to_pylist()}
