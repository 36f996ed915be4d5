"""What a job's tables are made by: Spark, or DuckDB in the process of the job itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rq.spark.attachments import Bad, File
from rq.spark.expectations import Counts, Parsed
from rq.spark.given import Given
from rq.spark.layouts import Layout
from rq.spark.progress import Watched
from rq.spark.staging import Stage, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


class Tables(Protocol):
    """The tables of one call of a job."""

    @property
    def engine(self) -> str:
        """`spark` or `duckdb`."""

    @property
    def session(self) -> SparkSession:
        """What a job knows as `q.spark`."""

    @property
    def watched(self) -> Watched:
        """What tells how far it is, and ends it."""

    def rows(
        self, every: Sequence[File], allow: Sequence[str], layout: Layout
    ) -> tuple[DataFrame, Counts]:
        """Return the lines of files, or what else they hold, and what counts that when
        it is read."""

    def find_bad(
        self, messages: Iterable[Given], allow: Sequence[str], layout: Layout
    ) -> list[Bad]:
        """Look through all files of messages; return those that cannot be read."""

    def split(
        self, lines: DataFrame, form: str, most_rejects: float | None
    ) -> tuple[DataFrame, Parsed]:
        """Return lines as columns, and those that `form` does not fit; BadInput."""

    def schema(self, table: DataFrame) -> pa.Schema:
        """Return the columns of a table."""

    def counted(self, table: DataFrame, key: Sequence[str], name: str) -> DataFrame:
        """Return a table with one more column: how many rows have the key of this one."""

    def of_lake(self, where: str, lake: DeltaTable) -> DataFrame:
        """Return the rows of a Delta table, as it was when it was loaded from there."""

    def last(self, table: DataFrame, key: Sequence[str], order: str) -> DataFrame:
        """Return the rows that are the last ones of their key, by a column, and those
        without a key; several if they are alike in it."""

    def write(self, table: DataFrame, stage: Stage, listed: Path) -> list[Staged]:
        """Write a table as files that no reader sees yet; `listed`: a file to note them in.
        BadInput, Unreachable."""

    def cause(self, error: Exception) -> Exception:
        """Return what an error of the engine comes from, if this knows it better."""

    def close(self) -> None:
        """Give back what only this call needed."""
