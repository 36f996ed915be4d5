"""A Delta table of many small files in many versions, made without an engine."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction
from pyarrow import parquet

ROWS = 10  # of a file


def write(place: Path, files: int, versions: int) -> None:
    """Let a table have so many files of ten rows, by so many commits."""
    rows = pa.table({"n": list(range(ROWS)), "text": ["a few letters"] * ROWS})
    each, number = files // versions, 0
    for version in range(versions):
        if not version:
            write_deltalake(str(place), rows.slice(0, 0))
        added = []
        for _ in range(each):
            name = f"batch-{number:06}.parquet"
            parquet.write_table(rows, place / name)
            added.append(_add(name, (place / name).stat().st_size))
            number += 1
        table = DeltaTable(place)
        table.create_write_transaction(added, "append", table.schema(), [])


def _add(name: str, size: int) -> AddAction:
    stats = f'{{"numRecords": {ROWS}}}'
    now = int(time.time() * 1000)
    return AddAction(name, size, {}, now, True, stats)
