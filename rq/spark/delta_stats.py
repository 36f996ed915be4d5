"""What the log of a table says of a file, so that readers pass over it: rows, least and
greatest values, nulls; from the footer of the file."""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection
from typing import Any

from rq.errors import BadInput
from rq.words import visible
from rq.words.nesting import Json

_LONGEST = 32  # characters of a text that is told as least or greatest
_MILLISECOND = datetime.timedelta(milliseconds=1)


def of(meta: Any, but: Collection[str] = ()) -> str:
    """Return the figures of a file as Delta's JSON; of columns that are not nested."""
    groups = [meta.row_group(n) for n in range(meta.num_row_groups)]
    least: dict[str, Json] = {}
    greatest: dict[str, Json] = {}
    nulls: dict[str, Json] = {}
    for number in range(meta.num_columns):
        chunks = [group.column(number) for group in groups]
        name = meta.schema.column(number).path
        if "." in name or name in but:
            continue
        statistics = [chunk.statistics for chunk in chunks]
        if any(each is None or not each.has_null_count for each in statistics):
            continue
        nulls[name] = sum(each.null_count for each in statistics)
        bounds = _bounds(name, [each for each in statistics if each.num_values])
        if bounds is not None:
            least[name], greatest[name] = bounds
    figures = {"minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps({"numRecords": meta.num_rows, **figures}, ensure_ascii=False)


def _bounds(name: str, statistics: list[Any]) -> tuple[Json, Json] | None:
    """Return the least and greatest value of a column, if it says both."""
    if not statistics or not all(each.has_min_max for each in statistics):
        return None
    try:
        low = _value(min(each.min for each in statistics), up=False)
        high = _value(max(each.max for each in statistics), up=True)
    except (OverflowError, ValueError) as error:
        # A table that a merge has brought such a day is one that readers cannot open.
        raise BadInput(
            f"q.table: {visible.line(name)} has a date or time that is not of the years 1 "
            f"to 9999: {error}"
        ) from None
    return None if low is None or high is None else (low, high)


def _value(value: Any, up: bool) -> Json:
    """Return a value as the log writes it; None if it is of a kind that is left out, as
    fractions are: whether one of them is no number the footer does not say."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else None
    if isinstance(value, datetime.datetime):
        return _moment(value, up)
    return value.isoformat() if isinstance(value, datetime.date) else None


def _moment(value: datetime.datetime, up: bool) -> str:
    """Return a time in milliseconds, which is what readers compare, rounded outwards."""
    rest = datetime.timedelta(microseconds=value.microsecond % 1000)
    value = value.replace(tzinfo=None) - rest
    if up and rest:
        value += _MILLISECOND
    return value.isoformat(timespec="milliseconds") + "Z"
