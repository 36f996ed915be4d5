"""`q.lines()` on Spark: a task reads a group of files, or of parts of large ones.

If one cannot be read, all of them are looked through, so that all that are bad are found
at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rq.spark import attachments, ranges, remote
from rq.spark.attachments import Bad, File
from rq.spark.given import Given
from rq.spark.remote import Allow

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "rq_lines"
SCHEMA = "msg_id string, src string, file string, lineno long, line string"
_BAD = "msg_id string, why string, passing boolean"

Way = Callable[[File, Allow], "Iterator[pa.RecordBatch]"]
_WAYS: dict[str, tuple[str, Way]] = {
    "lines": (SCHEMA, attachments.batches),
    "bad": (_BAD, attachments.checked),
}


def rows(
    spark: SparkSession,
    every: Sequence[File],
    allow: Sequence[str] = (),
    part: int = ranges.PART,
) -> DataFrame:
    """Return the lines of files as a DataFrame of SCHEMA; large ones are read in parts
    of about so many bytes."""
    return _reader(spark, every, allow, "lines").option("part", str(part)).load()


def find_bad(
    spark: SparkSession, messages: Iterable[Given], allow: Sequence[str]
) -> list[Bad]:
    """Look through all files of messages; return those that cannot be read."""
    every, bad = attachments.listed(messages, allow)
    reader = _reader(spark, every, allow, "bad")
    spoiled = reader.load().collect() if every else []
    return [*bad, *(Bad(*row) for row in spoiled)]


def _reader(
    spark: SparkSession, every: Sequence[File], allow: Sequence[str], what: str
) -> DataFrameReader:
    spark.dataSource.register(Lines)
    groups = max(1, spark.sparkContext.defaultParallelism) * 4
    text = json.dumps([astuple(file) for file in every])
    reader = spark.read.format(FORMAT).option("files", text).option("of", what)
    reader = reader.option("allow", json.dumps(list(allow)))
    return reader.option("groups", str(groups))


class Lines(DataSource):
    """The source behind `q.lines()`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        schema, _ = _WAYS[self.options["of"]]
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        every = [File(*fields) for fields in json.loads(self.options["files"])]
        allow = json.loads(self.options["allow"])
        if "part" in self.options:
            every = ranges.parted(every, int(self.options["part"]))
        _, way = _WAYS[self.options["of"]]
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
