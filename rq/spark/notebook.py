"""The history as a DataFrame, for questions that no page answers."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rq import config
from rq.spark import bronze
from rq.spark.journal_source import SCHEMA


def history(spark: SparkSession, root: str | Path | None = None) -> DataFrame:
    """Return all events that rounds have taken in, each once: the columns of bronze, and
    `date`. Filters on `date` choose directories, those on `ts` and `queue` parts of files.

    It stands for what `current.json` says now, and can be read for an hour, whatever is
    merged meanwhile; then call it again. `root`: where RQ is, else as the command line
    finds it. BadConfig when there is none; Damaged when a file is empty.
    """
    place = bronze.place(config.find_root(str(root) if root else None))
    current = place.current()
    source = place.bronze(current.number)
    paths = bronze.directories(source, current)
    if not paths:
        return spark.createDataFrame([], f"{SCHEMA}, date date")
    dated = bronze.read(spark, source, paths, date="date")
    return dated.drop("batch")
