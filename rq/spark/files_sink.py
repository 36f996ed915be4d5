"""`q.write` on Spark: each task writes the files of its rows, which pass through nothing
else; the list of these is all that comes to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    WriterCommitMessage,
)

from rq.config import files
from rq.spark import staging
from rq.spark.staging import Stage, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "rq_files"


def write(
    spark: SparkSession, table: DataFrame, stage: Stage, listed: Path
) -> list[Staged]:
    """Write a table as Parquet files; return these. `listed`: a file for their list, by
    which a process of Spark on this host tells them."""
    spark.dataSource.register(Files)
    rows = table.sortWithinPartitions(*stage.by) if stage.by else table
    writer = rows.write.format(FORMAT).mode("append").option("list", str(listed))
    writer.option("stage", json.dumps(asdict(stage))).save()
    staged = json.loads(listed.read_bytes())
    listed.unlink()
    return [Staged(**file) for file in staged]


class Files(DataSource):
    """The sink behind `q.write`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

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
    names of its own, which nobody lists."""

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
