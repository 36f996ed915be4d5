"""Columns of a table that must have a value, and files that have rows without one."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from rq.spark import delta_parts


def required(schema: str) -> list[str]:
    """Return the columns of a schema that must have a value.

    >>> required('{"fields": [{"name": "n", "type": "long", "nullable": false}]}')
    ['n']
    """
    fields = json.loads(schema)["fields"]
    return [field["name"] for field in fields if not field.get("nullable", True)]


def requiring(schema: str, names: Collection[str]) -> str:
    """Return a schema in which some columns must have a value, and no others."""
    about = json.loads(schema)
    for field in about["fields"]:
        field["nullable"] = field["name"] not in names
    return json.dumps(about)


def refused(required: Iterable[str], nulls: Collection[str]) -> str:
    """Return why a table does not take rows with `nulls`, or nothing."""
    first = next((name for name in required if name in nulls), "")
    return first and (
        f"the column {first} has a value in each row of the table, and some rows here "
        "have none"
    )


def of_file(figures: str, folder: str) -> set[str]:
    """Return the columns without a value in some row, as what the log says of a file
    (`delta_stats`) and the names of its directories tell."""
    counts: dict[str, int] = json.loads(figures)["nullCount"]
    parts = delta_parts.values(folder)
    return {name for name, count in counts.items() if count} | {
        name for name, value in parts.items() if value is None
    }


def unsaid(figures: str, folder: str, names: Iterable[str]) -> list[str]:
    """Return those of some columns of which neither tells."""
    said = {*json.loads(figures)["nullCount"], *delta_parts.values(folder)}
    return [name for name in names if name not in said]


def read(path: str, system: Any, names: Iterable[str]) -> set[str]:
    """Return those of some columns that have rows without a value, as the file itself
    has it."""
    from pyarrow import parquet

    return {
        name
        for name in names
        if parquet.read_table(path, columns=[name], filesystem=system)
        .column(name)
        .null_count
    }
