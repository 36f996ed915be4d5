"""What the Parquet of a directory of bronze holds, told without Spark.

A round asks it which hours of a day a batch has touched, and which batches need not be
read for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute

from rq.errors import Damaged
from rq.spark import failures

HOUR_US = 3_600_000_000
HOURS = frozenset(range(24))
_TS = "ts"
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Extent:
    """What the ends of files tell of a directory."""

    rows: int
    hours: frozenset[int]  # of the day: none outside of them has an event there


def extent(directory: Path) -> Extent:
    """Return how much a directory holds, and of which hours at most; Damaged."""
    ends = list(_of_each(directory, lambda file: file.metadata))
    groups = (end.row_group(n) for end in ends for n in range(end.num_row_groups))
    hours = frozenset[int]().union(*map(_hours_of, groups))
    return Extent(sum(end.num_rows for end in ends), hours)


def _hours_of(group: pq.RowGroupMetaData) -> frozenset[int]:
    columns = (group.column(number) for number in range(group.num_columns))
    statistics = next(
        (each.statistics for each in columns if each.path_in_schema == _TS), None
    )
    if statistics is None or not statistics.has_min_max:
        return HOURS
    first, last = _hour(statistics.min), _hour(statistics.max)
    return frozenset(range(first, last + 1))


def midnight(date: str) -> int:
    """Return when a day begins, in µs since the epoch."""
    return round(datetime.fromisoformat(f"{date}T00:00+00:00").timestamp()) * 10**6


def _hour(ts: int) -> int:
    return ts // HOUR_US % 24


def touched(directory: Path) -> frozenset[int]:
    """Return the hours of the day of which a directory has events; Damaged."""
    return frozenset[int]().union(*_of_each(directory, _touched))


def _touched(file: pq.ParquetFile) -> set[int]:
    hours: set[int] = set()
    for batch in file.iter_batches(columns=[_TS]):
        starts = compute.divide(batch.column(0), HOUR_US).unique()
        hours.update(start % 24 for start in starts.to_pylist())
    return hours


def _of_each(directory: Path, look: Callable[[pq.ParquetFile], Fact]) -> Iterator[Fact]:
    """Give what a look at each file tells."""
    for path in sorted(directory.glob("*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                fact = look(file)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(failures.damaged(path)) from error
        yield fact
