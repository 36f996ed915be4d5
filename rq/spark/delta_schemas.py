"""Schemas of Delta, as its JSON: the columns, and whether those of rows fit a table."""

from __future__ import annotations

import json
from typing import Any


def columns(schema: str) -> dict[str, str]:
    """Return the columns of a schema, each with its type as text.

    >>> columns('{"fields": [{"name": "n", "type": "long"}]}')
    {'n': 'long'}
    """
    return {f["name"]: _text(f["type"]) for f in json.loads(schema)["fields"]}


def _text(kind: Any) -> str:
    """Return a type in a word.

    >>> _text({"type": "array", "elementType": "long"})
    'array<long>'
    """
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_text(kind['keyType'])}, {_text(kind['valueType'])}>"
    inner = (f"{field['name']}: {_text(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(inner)}>"


def lost(table: str, rows: str) -> str:
    """Return which column of a table rows lack, or nothing."""
    there, here = columns(table), columns(rows)
    missing = [name for name in there if name not in here]
    if not missing:
        return ""
    return f"the column {missing[0]} ({there[missing[0]]}) of the table is missing here"


def misfit(table: str, rows: str, evolve: bool) -> str:
    """Return why rows do not fit a table, or nothing.

    >>> long = '{"fields": [{"name": "n", "type": "long"}]}'
    >>> text = '{"fields": [{"name": "n", "type": "string"}]}'
    >>> misfit(long, text, evolve=True)
    'the column n is long in the table and string here: cast it'
    """
    there, here = columns(table), columns(rows)
    for name in [name for name in there if name in here]:
        if here[name] != there[name]:
            return f"the column {name} is {there[name]} in the table and {here[name]} here: cast it"
    added = [name for name in here if name not in there]
    small = {name.lower(): name for name in there}
    for name in added:
        if name.lower() in small:
            return f"the column {name} is {small[name.lower()]} in the table: rename it"
    if added and not evolve:
        return f"the table has no column {added[0]} ({here[added[0]]})"
    return ""
