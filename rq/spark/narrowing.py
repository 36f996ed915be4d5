"""What filters of Spark leave of queues, states and dates to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from rq.spark.folders_plan import Wanted

# Which part of Wanted a column of messages, or of events, is about.
OF_MESSAGES = {"queue": "queues", "state": "states", "date": "dates"}
OF_EVENTS = {"queue": "queues", "date": "dates"}
_RANGES = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


def narrowed(
    wanted: Wanted, condition: Filter, columns: Mapping[str, str]
) -> Wanted | None:
    """Return what is wanted if a filter holds, too; None when Spark has to look."""
    column = getattr(condition, "attribute", ("",))[0]
    what = columns.get(column)
    if what is None:
        return None
    if isinstance(condition, EqualTo | EqualNullSafe):
        value = condition.value
        return None if value is None else wanted.only(what, _texts([value]))
    if isinstance(condition, In):
        return wanted.only(what, _texts(condition.value))
    if what == "dates" and isinstance(condition, _RANGES):
        return _in_range(wanted, condition)
    return None


def _in_range(
    wanted: Wanted,
    condition: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
) -> Wanted | None:
    """Return what is wanted within a range of dates. They compare as their eight digits
    do, so the next number is as good as the next day."""
    if not isinstance(condition.value, date):
        return None
    day = _digits(condition.value)
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        first = f"{day + isinstance(condition, GreaterThan):08d}"
        return replace(wanted, first=max(wanted.first, first))
    last = f"{day - isinstance(condition, LessThan):08d}"
    return replace(wanted, last=min(wanted.last, last))


def _digits(day: date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


def _texts(values: Iterable[object]) -> frozenset[str]:
    return frozenset(
        f"{_digits(value):08d}" if isinstance(value, date) else str(value)
        for value in values
    )
