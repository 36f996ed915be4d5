"""Where a round begins: behind the last one, or anew when its place was lost.

A history that is made anew reads the journals from what is left of them, and takes over
from the one before it what no journal holds any more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from rq.config import files
from rq.layout import Root
from rq.spark import bronze, journal_plan
from rq.spark.bronze import Current, Place


def begin(spark: SparkSession, root: Root, place: Place, rebuild: bool) -> Current:
    """Return where to go on; in a new directory if there is a history and its place in
    the journals is not known, or on request."""
    current = place.current()
    checkpoint = place.checkpoint(current.number)
    lost = place.bronze(current.number).is_dir() and not checkpoint.is_dir()
    if rebuild or (lost and current.before is None):
        number = f"{int(current.number) + 1:04d}"
        current = Current(number, before=current.before or current)
    elif place.current_file.exists() and current.before is None:
        _sweep(place.bronze(current.number))
        return current
    files.write_state(place.current_file, current.to_json())
    if current.before is not None:
        _take_over(spark, root, place, current.before, current.number)
        current = replace(current, before=None)
        files.write_state(place.current_file, current.to_json())
    return current


def _sweep(source: Path) -> None:
    """Remove what was left by writes that were cut off; this is the only writer here."""
    for path in source.glob(".spark-staging-*"):
        files.remove_dir(path)


def _take_over(
    spark: SparkSession, root: Root, place: Place, before: Current, number: str
) -> None:
    """Copy the events that are in no journal any more: what will be read begins later, or
    goes on behind a gap."""
    source = place.bronze(before.number)
    paths = bronze.directories(source, before)
    if not paths:
        return
    held = [
        (journal.journal, first, last)
        for journal in journal_plan.look(root)
        for first, last in journal_plan.held(journal)
    ]
    kept = spark.createDataFrame(held, "of string, first bigint, last bigint")
    events = bronze.read(spark, source, paths).drop("date", "batch")
    within = F.col("seq").between(F.col("first"), F.col("last"))
    is_kept = (F.col("journal") == F.col("of")) & within
    left = events.join(F.broadcast(kept), is_kept, "left_anti")
    bronze.write(left, bronze.TAKEN_OVER, str(place.bronze(number)))
