"""Tables on Spark: `q.lines()` and rows of files, and `q.write`, whose rows pass through no other process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from rq.config import files
from rq.spark import (
    attachments,
    expectations,
    file_parts,
    functions,
    lake_source,
    layouts,
    leftovers,
    parsing,
    remote,
    schemas,
    staging,
)
from rq.spark.attachments import Bad, File
from rq.spark.expectations import Counts, Parsed
from rq.spark.given import Given
from rq.spark.layouts import LINES, Layout
from rq.spark.progress import OnSpark
from rq.spark.remote import Allow
from rq.spark.rules import PLACE
from rq.spark.staging import Stage, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

FILES_FORMAT = "rq_files"
LINES_FORMAT = "rq_lines"
SCHEMA = "msg_id string, src string, file string, lineno long, line string"
_BAD_FILES = "msg_id string, why string, passing boolean"

Way = Callable[[File, Allow], "Iterator[pa.RecordBatch]"]
_ROWS, _BAD = "rows", "bad"  # what is wanted of files


class SparkTables:
    """The tables of a session of Spark, which outlives them."""

    engine = functions.SPARK

    def __init__(self, session: SparkSession) -> None:
        # A job that ends with `q.spark.stop()` means well: it is RQ that ends Spark.
        session.stop = _do_nothing
        self.session = session
        self.watched = OnSpark(session)

    def rows(
        self, every: Sequence[File], allow: Sequence[str], layout: Layout
    ) -> tuple[DataFrame, Counts]:
        table = _reader(self.session, every, allow, layout).load()
        counted = expectations.counted(table)
        return counted.observed, counted

    def find_bad(
        self, messages: Iterable[Given], allow: Sequence[str], layout: Layout
    ) -> list[Bad]:
        return find_bad(self.session, messages, allow, layout)

    def split(
        self, lines: DataFrame, form: str, most_rejects: float | None
    ) -> tuple[DataFrame, Parsed]:
        return parsing.split(lines, form, most_rejects)

    def schema(self, table: DataFrame) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(table.schema)

    def counted(self, table: DataFrame, key: Sequence[str], name: str) -> DataFrame:
        from pyspark.sql import Window, functions

        of_key = Window.partitionBy(*(f"`{column}`" for column in key))
        count = functions.count(functions.lit(1)).over(of_key)
        return table.withColumn(name, count)

    def of_lake(self, where: str, lake: DeltaTable) -> DataFrame:
        return lake_source.rows(self.session, where, lake)

    def last(self, table: DataFrame, key: Sequence[str], order: str) -> DataFrame:
        from pyspark.sql import Window, functions

        keys = [functions.col(f"`{column}`") for column in key]
        newest = functions.col(f"`{order}`").desc_nulls_last()
        place = functions.rank().over(Window.partitionBy(*keys).orderBy(newest))
        is_last = functions.col(PLACE) == 1
        for column in keys:
            is_last |= column.isNull()
        return table.withColumn(PLACE, place).where(is_last).drop(PLACE)

    def write(self, table: DataFrame, stage: Stage, listed: Path) -> list[Staged]:
        return write(self.session, table, stage, listed)

    def cause(self, error: Exception) -> Exception:
        return error

    def close(self) -> None:
        with contextlib.suppress(Exception):  # Java may be gone
            leftovers.end_streams(self.session)


def _do_nothing() -> None:
    pass


# ---- q.write: each task writes the files of its rows


def write(
    spark: SparkSession, table: DataFrame, stage: Stage, listed: Path
) -> list[Staged]:
    """Write a table as Parquet files; return these. `listed`: a file for their list, by
    which a process of Spark on this host tells them."""
    spark.dataSource.register(Files)
    if stage.by and stage.is_delta:  # else each task would write a file of each value
        table = table.hint("rebalance", *stage.by)
    rows = table.sortWithinPartitions(*stage.by) if stage.by else table
    writer = rows.write.format(FILES_FORMAT).mode("append").option("list", str(listed))
    writer.option("stage", json.dumps(asdict(stage))).save()
    staged = json.loads(listed.read_bytes())
    listed.unlink()
    return [Staged(**file) for file in staged]


class Files(DataSource):
    """The sink behind `q.write`."""

    @classmethod
    def name(cls) -> str:
        return FILES_FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        stage = json.loads(self.options["stage"])
        return Writer(
            Stage(**{**stage, "by": tuple(stage["by"])}), self.options["list"]
        )


@dataclass(frozen=True)
class Part(WriterCommitMessage):
    """What one task has written."""

    files: tuple[Staged, ...]


class Writer(DataSourceArrowWriter):
    """Writes the rows of one table. An attempt that Spark does not take has written under
    names of its own, which are in no list."""

    def __init__(self, stage: Stage, listed: str) -> None:
        self._stage = stage
        self._listed = listed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None, "Spark has called it in a task"
        part = f"{task.partitionId()}-{task.taskAttemptId()}"
        return Part(tuple(staging.write(iterator, self._stage, part)))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        parts = (part for part in messages if isinstance(part, Part))
        staged = [asdict(file) for part in parts for file in part.files]
        files.write_bytes(Path(self._listed), json.dumps(staged).encode())


# ---- q.lines(): a task reads a group of files, or of parts of large ones
#
# If a file cannot be read, all of them are looked through, so that all that are bad are
# found at once.


def rows(
    spark: SparkSession,
    every: Sequence[File],
    allow: Sequence[str] = (),
    part: int = file_parts.SIZE,
) -> DataFrame:
    """Return the lines of files as a DataFrame of SCHEMA; large ones are read in parts
    of about so many bytes."""
    return _reader(spark, every, allow, LINES).option("part", str(part)).load()


def find_bad(
    spark: SparkSession,
    messages: Iterable[Given],
    allow: Sequence[str],
    layout: Layout = LINES,
) -> list[Bad]:
    """Look through all files of messages; return those that cannot be read."""
    every, bad = attachments.listed(messages, allow)
    every = [file for file in every if layout.takes(file)]
    reader = _reader(spark, every, allow, layout).option("of", _BAD)
    spoiled = reader.load().collect() if every else []
    return [*bad, *(Bad(*row) for row in spoiled)]


def _reader(
    spark: SparkSession, every: Sequence[File], allow: Sequence[str], layout: Layout
) -> DataFrameReader:
    spark.dataSource.register(Lines)
    groups = max(1, spark.sparkContext.defaultParallelism) * 4
    text = json.dumps([astuple(file) for file in every])
    reader = spark.read.format(LINES_FORMAT).option("files", text).option("of", _ROWS)
    reader = reader.option("allow", json.dumps(list(allow)))
    reader = reader.option("layout", layout.text()).option("part", str(file_parts.SIZE))
    return reader.option("groups", str(groups))


class Lines(DataSource):
    """The source behind `q.lines()` and `q.csv()`."""

    @classmethod
    def name(cls) -> str:
        return LINES_FORMAT

    def schema(self) -> str:
        layout = layouts.parsed(self.options["layout"])
        if self.options["of"] == _BAD:
            return _BAD_FILES
        return schemas.table(layout.columns) if layout.columns else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        every = [File(*fields) for fields in json.loads(self.options["files"])]
        allow = json.loads(self.options["allow"])
        layout = layouts.parsed(self.options["layout"])
        is_bad = self.options["of"] == _BAD
        if not is_bad:
            every = file_parts.parted(every, layout, int(self.options["part"]))
        way = layout.checked if is_bad else layout.batches
        return Reader(every, int(self.options["groups"]), way, allow)


class Group(InputPartition):
    """The files of one task."""

    def __init__(self, members: Sequence[File]) -> None:
        super().__init__(tuple(members))


class Reader(DataSourceReader):
    """Reads groups of files of about the same size."""

    def __init__(
        self, every: Sequence[File], groups: int, way: Way, allow: Sequence[str]
    ) -> None:
        self.files = every
        self.groups = groups
        self.way = way
        self.allow = allow

    def partitions(self) -> Sequence[InputPartition]:
        return [
            Group(members) for members in attachments.grouped(self.files, self.groups)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        may = remote.allow(self.allow)
        for file in partition.value:
            yield from self.way(file, may)
