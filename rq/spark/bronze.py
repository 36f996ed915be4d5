"""Where the history lies under ROOT/spark/history, and which Parquet of it counts.

`NUMBER/bronze/date=D/batch=N/` is what batch N of the stream brought for a day; a replay
replaces it. `batch=cN` holds all batches up to N, merged: it counts from when
`current.json` names it. `batch=-1` is what only an earlier NUMBER still held. Readers take
the directories that `batches` gives.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypedDict, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import compute
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from rq import config
from rq.errors import Damaged
from rq.layout import Root
from rq.spark import failures
from rq.spark.functions import literal
from rq.spark.journal_source import SCHEMA
from rq.words.nesting import Json

TAKEN_OVER = -1  # the batch of what came from an earlier history
NOTHING = -2  # less than any batch
_FIRST = "0001"
_DATE, _BATCH = "date=", "batch="
_NUMBER = re.compile(r"(c?)(-?\d+)", re.ASCII)
HOUR_US = 3_600_000_000
HOURS = frozenset(range(24))
_TS = "ts"
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Current:
    """What `current.json` says."""

    number: str = _FIRST  # of the directory; another one when a checkpoint was lost
    merged: dict[str, int] = field(default_factory=dict)  # date: up to which batch
    before: Current | None = None  # what is still to be taken over from

    def to_json(self) -> dict[str, Json]:
        before = {"before": self.before.to_json()} if self.before else {}
        return {"number": self.number, "merged": self.merged, **before}

    def with_merged(self, date: str, upto: int) -> Current:
        return replace(self, merged={**self.merged, date: upto})


class _Data(TypedDict, total=False):
    """What `current.json` holds."""

    number: str
    merged: dict[str, int]
    before: _Data


def _current(data: _Data) -> Current:
    before = _current(data["before"]) if "before" in data else None
    return Current(str(data["number"]), dict(data["merged"]), before)


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of the history."""

    path: Path

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def current_file(self) -> Path:
        return self.path / "current.json"

    def current(self) -> Current:
        """Return what counts; the first of all when nothing was written yet.

        BadConfig: it cannot be read. To guess would count merged events twice.
        """
        if not self.current_file.exists():
            return Current()
        return _current(cast(_Data, config.read_json(self.current_file)))

    def checkpoint(self, number: str) -> Path:
        return self.path / number / "checkpoint"

    def bronze(self, number: str) -> Path:
        return self.path / number / "bronze"

    def others(self, number: str) -> list[Path]:
        """Return the directories of earlier histories."""
        names = [name for name in _names(self.path, "") if name.isdecimal()]
        return [self.path / name for name in names if name != number]

    def gold(self, number: str) -> Path:
        return self.path / number / "gold"


def place(root: Root) -> Place:
    return Place(root.spark / "history")


@dataclass(frozen=True, slots=True)
class Batch:
    """A directory of Parquet files of one day."""

    path: Path
    number: int
    merged: bool  # it holds all batches up to `number`


def dates(bronze: Path) -> list[str]:
    """Return the days of which there is anything."""
    return sorted(name.removeprefix(_DATE) for name in _names(bronze, _DATE))


def batches(bronze: Path, date: str, current: Current) -> list[Batch]:
    """Return the directories that make up a day."""
    upto = current.merged.get(date, NOTHING)
    return [
        batch
        for batch in every_batch(bronze, date)
        if (batch.number == upto if batch.merged else batch.number > upto)
    ]


def directories(bronze: Path, current: Current) -> list[Path]:
    """Return the directories that make up all days."""
    every = dates(bronze)
    return [batch.path for date in every for batch in batches(bronze, date, current)]


def every_batch(bronze: Path, date: str) -> list[Batch]:
    """Return all directories of a day, those that no longer count, too."""
    day = bronze / f"{_DATE}{date}"
    every = []
    for name in _names(day, _BATCH):
        number = _NUMBER.fullmatch(name.removeprefix(_BATCH))
        if number:
            every.append(Batch(day / name, int(number[2]), bool(number[1])))
    return sorted(every, key=lambda batch: (batch.number, batch.merged))


def merged_path(bronze: Path, date: str, upto: int) -> Path:
    return bronze / f"{_DATE}{date}" / f"{_BATCH}c{upto}"


def _names(path: Path, start: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name.startswith(start)]
    except FileNotFoundError:
        return []


# ---- Parquet


def write(lines: DataFrame, batch: int, target: str) -> None:
    """Write a batch by date; what it wrote before goes."""
    dated = lines.withColumn(
        "date", F.date_format(F.timestamp_micros("ts"), "yyyy-MM-dd")
    ).withColumn("batch", F.lit(str(batch)))
    (
        _written(dated.repartition("date").sortWithinPartitions("date", *_order()))
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("date", "batch")
        .parquet(target)
    )


def write_merged(events: DataFrame, path: Path) -> None:
    """Write a day as one file."""
    rows = events.drop("date", "batch").coalesce(1)
    _written(rows.sortWithinPartitions(*_order())).parquet(str(path))


def _order() -> list[Column]:
    """Return what the events of a day are sorted by: of a file only those pages are read
    that have the hours that are asked for, and of these those of a queue."""
    return [F.expr("ts div 3600000000"), *map(F.col, ("queue", "journal", "seq"))]


def _written(events: DataFrame) -> DataFrameWriter:
    return events.write.mode("overwrite").option("compression", "zstd")


def read(
    spark: SparkSession, bronze: Path, paths: Iterable[Path], *, date: str = "string"
) -> DataFrame:
    """Return the events of directories of Parquet, with `date` (of that type) and
    `batch`; columns that old ones lack are null.

    Damaged: a file is empty. Spark takes it for one without rows; a power cut made it.
    """
    directories = list(paths)
    for file in (file for path in directories for file in path.glob("*.parquet")):
        if not file.stat().st_size:
            raise Damaged(failures.damaged(file))
    return (
        spark.read.schema(f"{SCHEMA}, date {date}, batch string")
        .option("basePath", str(bronze))
        .parquet(*map(literal, directories))
    )


# ---- what the Parquet of a directory holds, told without Spark


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
