"""Events for rounds of the history, and what rounds have made of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from harness.journal_files import DAY, START, JournalFiles, life
from rq import published
from rq.layout import Root
from rq.spark import bronze, building, journal_source, publish
from rq.spark.building import History, Touched

PAST = START - 400 * DAY  # of days that are over


def some(number, first=0, start=START, days=1, seed=1):
    """Give the events of messages of every kind of life."""
    rnd = random.Random(seed)
    ends = [("finish", "done"), ("fail", "exit"), ("retry", "resend")]
    ends += [("finish", "done"), ("relay", "relayed"), ("recover", "crash")]
    for index in range(first, first + number):
        end, cause = rnd.choice(ends)
        yield from life(
            f"m{index}",
            start + rnd.randrange(int(days * DAY) - 10**9),
            end=end,
            cause=cause,
            wait_us=int(rnd.lognormvariate(8, 2)),
            run_us=int(rnd.lognormvariate(12, 2)),
        )


def shown(root):
    """Return what is published of each day, by queue and hour, and what is slowest."""
    place = published.Published(published.place(root))
    found = {}
    for day in place.days(place.index()["days"]):
        found[day["date"]] = {
            (one.pop("queue"), one.pop("hour")): one for one in day["parts"]
        }
    return found


def slowest(root):
    place = published.Published(published.place(root))
    return [day["slowest"] for day in place.days(place.index()["days"])]


def bronze_files(root):
    place = bronze.place(root)
    current = place.current()
    source = place.bronze(current.number)
    return [
        str(path)
        for date in bronze.dates(source)
        for one in bronze.batches(source, date, current)
        for path in one.path.glob("*.parquet")
    ]


class Gold:
    """A root whose gold is built from batches that no stream has brought."""

    def __init__(self, spark: SparkSession, root: Root) -> None:
        self.root = root
        self.journal = JournalFiles(root, "a", "aa")
        place = bronze.place(root)
        self.at = History(spark, place, place.current())
        self.batch = 0

    def take_in(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Seal events, and write them as the next batch of bronze."""
        path = self.journal.seal(events)
        rows = [json.loads(text) for text in path.read_text().splitlines()[1:]]
        table = pa.Table.from_batches([journal_source._batch("aa", rows, False)])
        frame = self.at.spark.createDataFrame(table)
        bronze.write(frame, self.batch, str(self.at.bronze))
        self.batch += 1

    def build(self, as_of: int) -> list[str]:
        """Build gold as of a moment, in µs; return the days that were computed."""
        _, days = building.build(self.at, self.root, as_of / 1e6, lambda text: None)
        return days

    def touched(self, as_of: int) -> list[Touched]:
        """Return what a build would compute."""
        number = self.at.current.number
        built = publish.built(published.place(self.root), number)
        return list(building._touched(self.at, built, as_of / 1e6))
