"""Rows that break a contract, on their way into the files of a table of their own.

All such tables have the same columns, whatever rows they are of: a row is text, so it is kept
even when the columns of its table have changed.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rq import tables
from rq.errors import BadInput
from rq.spark.rules import MARK

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = tables.REJECTED


class Sieve:
    """Takes rows that break a rule out of batches; made of what `contracts` tells tasks."""

    def __init__(self, contract: str) -> None:
        about = json.loads(contract)
        self._rules: list[tuple[list[str], str, bool]] = about["rules"]
        self._batch: str = about["batch"]
        self._time = datetime.datetime.fromtimestamp(about["time"], datetime.UTC)

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that break none."""
        from pyarrow import compute

        rows = batch.filter(compute.equal(batch.column(MARK), 0))
        return rows.drop_columns([MARK])

    def broken(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the others, as rows of their own table; None if there is none. BadInput
        if one of them ends the batch."""
        import pyarrow as pa
        from pyarrow import compute

        rows = batch.filter(compute.not_equal(batch.column(MARK), 0))
        if not rows.num_rows:
            return None
        try:
            every = rows.to_pylist()
        except (OverflowError, ValueError) as error:  # no text stands for it
            raise BadInput(
                "q.contract: a row that breaks it has a date or time that is not of the "
                f"years 1 to 9999: {error}"
            ) from None
        entries = [self._entry(row) for row in every]
        return pa.RecordBatch.from_pylist(entries, schema=_schema())

    def _entry(self, row: dict[str, Any]) -> dict[str, Any]:
        columns, rule, ends = self._rules[row.pop(MARK) - 1]
        if ends:
            raise BadInput(f"q.table: {_sentence(columns, _value(row, columns), rule)}")
        return {
            "column": ", ".join(columns),
            "rule": rule,
            "value": _value(row, columns),
            "row": json.dumps(
                {name: _plain(value) for name, value in row.items()},
                ensure_ascii=False,
                default=_text,
            ),
            "batch": self._batch,
            "time": self._time,
        }


def _schema() -> pa.Schema:
    import pyarrow as pa

    texts = ("column", "rule", "value", "row", "batch")
    time = pa.field("time", pa.timestamp("us", "UTC"))
    return pa.schema([*(pa.field(name, pa.string()) for name in texts), time])


def _value(row: Mapping[str, Any], columns: Sequence[str]) -> str | None:
    values = [row[name] for name in columns]
    if len(values) == 1 and values[0] is None:
        return None
    return ", ".join("null" if each is None else _text(each) for each in values)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; what is no number is text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return value.hex() if isinstance(value, bytes) else str(value)


def samples(entries: Sequence[Mapping[str, Any]], most: int) -> str:
    """Return some rules that rejected rows break, each once, as people read them."""
    first: dict[tuple[str, str], str | None] = {}
    for entry in entries:
        first.setdefault((entry["column"], entry["rule"]), entry["value"])
    texts = [
        _sentence([column], value, rule)
        for (column, rule), value in list(first.items())[:most]
    ]
    return "; ".join(texts)


def _sentence(columns: Sequence[str], value: str | None, rule: str) -> str:
    text = "null" if value is None else repr(value)[:60]
    return f"{', '.join(columns)} is {text}: {rule}"
