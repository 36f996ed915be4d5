"""A round of the history: sealed events into bronze, bronze into gold, gold published.

Each step may be cut off by kill -9 at any instant; the next round ends what it left. The
stream's checkpoint decides which batch is which, and a batch that comes again replaces
what it wrote.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it
from pyspark.sql.streaming.query import StreamingQuery

from rq import names
from rq.config import files
from rq.errors import Damaged, Refused, RQError
from rq.layout import Root
from rq.proc import locks
from rq.rpc import client
from rq.spark import bronze, building, failures, journal_plan, journal_source, machine
from rq.spark.bronze import Current, Place
from rq.spark.building import History, Tell
from rq.spark.journal_source import JournalSource
from rq.words.wording import moment

_SEAL_PATIENCE = 30.0  # seconds for an owner
_TURN = 0.2  # seconds between looks whether it is our turn
OLD = 3600.0  # seconds that merged directories stay for readers that are at them
_AT_ONCE = 7  # days


class AtWork(Refused):
    """Another process runs a round in this root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round did."""

    as_of: float
    batches: int
    events: int
    days: list[str]  # computed in this round
    counts: dict[str, dict[str, int]]
    silent: list[str]  # queues whose owners were not there to seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a round is run."""

    rows: int = journal_source.ROWS
    skip_gaps: bool = False
    rebuild: bool = False
    old: float = OLD
    patience: float = 0.0  # seconds to wait for another round to end


def sentence(done: Round) -> str:
    """Return what a round did, for a person."""
    days = f"{len(done.days)} day{'s' * (len(done.days) != 1)} computed"
    text = f"{done.events} new events, {days}, as of {moment(done.as_of)} UTC"
    if done.silent:
        text += (
            f"; did not answer, read up to their last seal: {', '.join(done.silent)}"
        )
    return text


def run_round(
    spark: SparkSession,
    root: Root,
    settings: Settings | None = None,
    tell: Tell = lambda text: None,
) -> Round:
    """Take in all that is sealed by now, and publish.

    AtWork: another round does. Damaged: this one cannot go on; it says why.
    """
    settings = settings or Settings()
    place = bronze.place(root)
    files.make_dir(place.path)
    on = machine.engine(spark)
    with _alone(place.lock, settings.patience):
        try:
            return _run(spark, root, place, settings, tell)
        except (PySparkException, Py4JError, OSError) as error:
            why = machine.failure(error, on) or failures.of_round(error)
            raise Damaged(why) from error


def _run(
    spark: SparkSession, root: Root, place: bronze.Place, settings: Settings, tell: Tell
) -> Round:
    as_of = time.time()
    silent = seal(root)
    current = _begin(spark, root, place, settings.rebuild)
    batches, events = _take_in(spark, root, place, current.number, settings, tell)
    at = History(spark, place, current)
    counts, days = building.build(at, root, as_of, tell)
    merge_closed(at, settings.old)
    return Round(
        as_of=as_of,
        batches=batches,
        events=events,
        days=days,
        counts=counts,
        silent=silent,
    )


@contextlib.contextmanager
def _alone(path: Path, patience: float = 0.0) -> Iterator[None]:
    """Let one round at a time run in a root."""
    end = time.monotonic() + patience
    while (fd := locks.lock(path)) is None:
        if time.monotonic() >= end:
            raise AtWork(
                "another round of the history is running: wait until it has ended"
            )
        time.sleep(_TURN)
    try:
        yield
    finally:
        os.close(fd)


def seal(root: Root) -> list[str]:
    """Ask every owner to seal; return the queues that did not answer."""
    silent = []
    for path in sorted(root.queues.iterdir()) if root.queues.is_dir() else ():
        queue = root.queue(path.name)
        if not names.is_queue_name(path.name) or not queue.config.is_file():
            continue
        try:
            client.demanded(client.ask(queue.socket, "seal", timeout=_SEAL_PATIENCE))
        except RQError:
            silent.append(queue.name)
    return silent


# ---- bronze


def _take_in(
    spark: SparkSession,
    root: Root,
    place: bronze.Place,
    number: str,
    settings: Settings,
    tell: Tell,
) -> tuple[int, int]:
    """Bring what is sealed into bronze; return the batches and the events."""
    spark.dataSource.register(JournalSource)
    target = str(place.bronze(number))
    lines = (
        spark.readStream.format(journal_source.NAME)
        .option("root", str(root.path))
        .option("rows", str(settings.rows))
        .option("skip_gaps", str(settings.skip_gaps).lower())
        .load()
    )

    def take(df: DataFrame, batch: int) -> None:
        tell(f"taking in events, batch {batch}")
        bronze.write(df, batch, target)

    query = (
        lines.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(place.checkpoint(number)))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return _progress(query)


def _progress(query: StreamingQuery) -> tuple[int, int]:
    batches = [batch for batch in query.recentProgress if batch.numInputRows]
    return len(batches), sum(batch.numInputRows for batch in batches)


# ---- one directory of the many of a day that is over
#
# Readers go by `current.json`, so what they count is the same at any time; what was merged
# stays a while for those that are at it.


def merge_closed(at: History, old: float) -> None:
    """Merge the batches of days that are over; remove what merging has left, once no
    reader can still have it open."""
    _remove_old(at, old)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    closed = [
        date
        for date in bronze.dates(at.bronze)
        if date < today and len(bronze.batches(at.bronze, date, at.current)) > 1
    ]
    for date in closed[:_AT_ONCE]:
        at = _merge(at, date)


def _merge(at: History, date: str) -> History:
    batches = bronze.batches(at.bronze, date, at.current)
    upto = batches[-1].number
    merged = bronze.merged_path(at.bronze, date, upto)
    bronze.write_merged(at.events(batches), merged)
    current = at.current.with_merged(date, upto)
    files.write_state(at.place.current_file, current.to_json())
    return replace(at, current=current)


def _remove_old(at: History, old: float) -> None:
    if time.time() - at.place.current_file.stat().st_mtime < old:
        return
    for path in at.place.others(at.current.number):
        files.remove_dir(path)
    for date, upto in at.current.merged.items():
        used = bronze.batches(at.bronze, date, at.current)
        for batch in bronze.every_batch(at.bronze, date):
            if batch not in used and batch.number <= upto:
                files.remove_dir(batch.path)


# ---- where a round begins: behind the last one, or at the start when its place was lost
#
# A history that is made again reads the journals from what is left of them, and takes over
# from the one before it what no journal holds any more.


def _begin(spark: SparkSession, root: Root, place: Place, rebuild: bool) -> Current:
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
