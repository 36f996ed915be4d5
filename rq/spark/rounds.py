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
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rq import client, names
from rq.config import files
from rq.errors import Damaged, Refused, RQError
from rq.layout import Root
from rq.proc import locks
from rq.spark import (
    bronze,
    building,
    failures,
    journal_source,
    machine,
    merging,
    renewal,
)
from rq.spark.building import History, Tell
from rq.spark.journal_source import JournalSource
from rq.wording import moment

_SEAL_PATIENCE = 30.0  # seconds for an owner
_TURN = 0.2  # seconds between looks whether it is our turn


class AtWork(Refused):
    """Another process runs a round in this root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round did."""

    as_of: float
    batches: int
    events: int
    days: list[str]  # computed anew
    counts: dict[str, dict[str, int]]
    silent: list[str]  # queues whose owners were not there to seal


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a round is run."""

    rows: int = journal_source.ROWS
    skip_gaps: bool = False
    rebuild: bool = False
    old: float = merging.OLD
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
    current = renewal.begin(spark, root, place, settings.rebuild)
    batches, events = _take_in(spark, root, place, current.number, settings, tell)
    at = History(spark, place, current)
    counts, days = building.build(at, root, as_of, tell)
    merging.merge_closed(at, settings.old)
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
