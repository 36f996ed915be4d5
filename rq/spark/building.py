"""Gold of what rounds have brought: the hours that got something, a few days at a time.

What was computed of each hour is kept, and a day is made from its hours. Each group of
days is published when it is computed, so a round that is cut off goes on behind it, and
many days take no more memory than a few.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from rq import published
from rq.config import files
from rq.layout import Root
from rq.spark import bronze, gold, gold_parts, journal_plan, publish
from rq.spark.bronze import HOUR_US, HOURS, Batch, Current, Place
from rq.spark.gold_parts import Day, Hour, day_of
from rq.spark.publish import Built

GROUP_ROWS = 2_000_000  # events that are computed at once, about; or those of one day

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class History:
    """Which gold is made from which bronze."""

    spark: SparkSession
    place: Place
    current: Current

    @property
    def bronze(self) -> Path:
        return self.place.bronze(self.current.number)

    @property
    def gold(self) -> Path:
        return self.place.gold(self.current.number)

    def events(self, batches: Iterable[Batch]) -> DataFrame:
        return bronze.read(self.spark, self.bronze, [each.path for each in batches])


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """A day of which something is to be computed again."""

    date: str
    batches: Sequence[Batch]  # that make it up
    new: frozenset[int]  # the hours to compute
    kept: Mapping[int, Hour]  # as they were computed before
    over: bool  # it is, so only late events can still come

    @property
    def upto(self) -> int:
        return self.batches[-1].number


def build(
    at: History, root: Root, as_of: float, tell: Tell
) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Compute the hours that got something, and publish; return how many messages of each
    queue are in which state, and the days that were computed."""
    target = published.place(root)
    files.make_dir(target.path)
    built = publish.built(target, at.current.number)
    touched = list(_touched(at, built, as_of))
    done = 0
    for group in _groups(touched):
        tell(f"computing days, {done} of {len(touched)} are done")
        days = _compute(at, group)
        publish.write_parquet(at.gold, days)
        upto = {day.date: day.upto for day in group}
        built = publish.write_days(target, built, days, upto, as_of)
        done += len(group)
    counts = publish.write_index(target, built, as_of, journal_plan.names_of(root))
    return counts, [day.date for day in touched]


# ---- what is to be computed


def _touched(at: History, built: Built, as_of: float) -> Iterator[Touched]:
    """Give the days that got something since they were built, and those that have ended
    since."""
    today = time.strftime("%Y-%m-%d", time.gmtime(as_of))
    for date in bronze.dates(at.bronze):
        batches = bronze.batches(at.bronze, date, at.current)
        over = date < today
        new = [batch for batch in batches if batch.number > built.upto(date)]
        if not new and (built.exact(date) or not over or not batches):
            continue
        kept = gold_parts.read_hours(at.gold, date, built.upto(date))
        hours = HOURS
        if kept is not None:
            parts = (bronze.touched(batch.path) for batch in new)
            hours = frozenset[int]().union(*parts)
        yield Touched(date=date, batches=batches, new=hours, kept=kept or {}, over=over)


def _groups(every: Iterable[Touched]) -> Iterator[list[Touched]]:
    """Give days that are computed at once: as many as have few enough events."""
    group: list[Touched] = []
    held = 0
    for day in every:
        rows = sum(bronze.extent(batch.path).rows for batch in day.batches)
        if group and held + rows > GROUP_ROWS:
            yield group
            group, held = [], 0
        group.append(day)
        held += rows
    if group:
        yield group


# ---- computing


def _compute(at: History, group: Sequence[Touched]) -> dict[str, Day]:
    """Return days as they are now; keep their hours."""
    hours = _hours(at, group)
    over = [batch for day in group if day.over for batch in day.batches]
    exact = gold.percentiles_of_days(at.events(over)) if over else {}
    days = {}
    for each in group:
        whole = {**each.kept, **hours.get(each.date, {})}
        gold_parts.write_hours(at.gold, each.date, each.upto, whole)
        days[each.date] = day_of(whole)
        if each.over:
            days[each.date].be_exact(exact.get(each.date, {}))
    return days


def _hours(at: History, group: Sequence[Touched]) -> gold.Days:
    """Compute the new hours of days. Batches that have nothing of them are not read, and
    of the others only the pages that do."""
    batches = [
        batch
        for day in group
        for batch in day.batches
        if day.new & bronze.extent(batch.path).hours
    ]
    if not batches:
        return {}
    events, wanted = at.events(batches), F.lit(False)
    for first, end in _ranges(group):
        wanted |= (F.col("ts") >= first) & (F.col("ts") < end)
    return gold.compute(events.where(wanted))


def _ranges(group: Iterable[Touched]) -> list[tuple[int, int]]:
    """Return the times of the new hours, those that touch as one: Spark looks into each
    page with all of them."""
    ranges: list[tuple[int, int]] = []
    for day in group:
        begin = bronze.midnight(day.date)
        for hour in sorted(day.new):
            first = begin + hour * HOUR_US
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], first + HOUR_US)
            else:
                ranges.append((first, first + HOUR_US))
    return ranges
