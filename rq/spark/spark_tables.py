"""Tables on Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rq.spark import (
    expectations,
    files_sink,
    functions,
    leftovers,
    lines_source,
    parsing,
)
from rq.spark.attachments import Bad, File
from rq.spark.expectations import Counts, Parsed
from rq.spark.given import Given
from rq.spark.progress import OnSpark
from rq.spark.staging import Stage, Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkTables:
    """The tables of a session of Spark, which outlives them."""

    engine = functions.SPARK

    def __init__(self, session: SparkSession) -> None:
        # A job that ends with `q.spark.stop()` means well: it is RQ that ends Spark.
        session.stop = _do_nothing
        self.session = session
        self.watched = OnSpark(session)

    def lines(
        self, every: Sequence[File], allow: Sequence[str]
    ) -> tuple[DataFrame, Counts]:
        counted = expectations.counted(lines_source.rows(self.session, every, allow))
        return counted.observed, counted

    def find_bad(self, messages: Iterable[Given], allow: Sequence[str]) -> list[Bad]:
        return lines_source.find_bad(self.session, messages, allow)

    def split(
        self, lines: DataFrame, form: str, most_rejects: float | None
    ) -> tuple[DataFrame, Parsed]:
        return parsing.split(lines, form, most_rejects)

    def write(self, table: DataFrame, stage: Stage, listed: Path) -> list[Staged]:
        return files_sink.write(self.session, table, stage, listed)

    def cause(self, error: Exception) -> Exception:
        return error

    def close(self) -> None:
        with contextlib.suppress(Exception):  # Java may be gone
            leftovers.end_streams(self.session)


def _do_nothing() -> None:
    pass
