"""Gold of what rounds have brought: the hours that got something, a few days at a time.

What was computed of each hour is kept, and a day is made from its hours. Each group of
days is published when it is computed, so a round that is cut off goes on behind it, and
many days take no more memory than a few.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from rq import published
from rq.config import files
from rq.layout import Root
from rq.published import BUCKETS, COUNT_OF, PERCENTS, added
from rq.spark import bronze, gold_parts, journal_plan, publish
from rq.spark.bronze import HOUR_US, HOURS, Batch, Current, Place
from rq.spark.gold_parts import SLOWEST, Day, Hour, Moved, Part, day_of
from rq.spark.publish import Built

GROUP_ROWS = 2_000_000  # events that are computed at once, about; or those of one day

Tell = Callable[[str], None]


# ---- gold of whole hours
#
# What happened per queue and hour. An hour is a sum over its events, whenever they
# came: late ones change exactly their hour and their day. Spark sorts and sums, and
# keeps no value of a whole day in memory.


_PERCENTS = ", ".join(f"{percent / 100}D" for percent in PERCENTS)

_COUNTS_SQL = """
SELECT date, queue, journal, hour(timestamp_micros(ts)) AS hour, ev, was, state, cause,
       count(*) AS lines,
       sum(coalesce(array_size(riders), 0)) AS riders,
       sum(coalesce(array_size(msgs), 1)) AS messages
FROM {events} WHERE state IS NOT NULL
GROUP BY ALL
"""
_DURATIONS_SQL = """
SELECT date, queue, hour(timestamp_micros(ts)) AS hour, kind, took FROM {events}
LATERAL VIEW stack(2, 'wait', wait_us, 'run', run_us) AS kind, took
WHERE run_us IS NOT NULL AND took IS NOT NULL
"""
# How often each value is there, then how many are not above it. The function `percentile`
# would keep all values of a group in memory.
_PERCENTILES_SQL = f"""
WITH counted AS (
  SELECT date, queue, hour, kind, took, count(*) AS number FROM {{durations}}
  GROUP BY GROUPING SETS ((date, hour, kind, took), (date, queue, hour, kind, took))),
placed AS (
  SELECT *, sum(number) OVER (PARTITION BY date, queue, hour, kind) AS total,
         sum(number) OVER (PARTITION BY date, queue, hour, kind ORDER BY took) AS upto
  FROM counted)
SELECT date, queue, hour, kind, part, total, min(took) AS low, max(took) AS high
FROM placed LATERAL VIEW explode(array({_PERCENTS})) AS part
WHERE upto > floor(part * (total - 1)) AND upto - number <= ceil(part * (total - 1))
GROUP BY ALL
"""
# The digits of a number in base 2 tell its logarithm exactly.
_HISTOGRAMS_SQL = """
SELECT date, queue, hour, kind, length(bin(greatest(took, 1))) - 1 AS bucket,
       count(*) AS number
FROM {durations}
GROUP BY ALL
"""
_SLOWEST_SQL = f"""
SELECT date, hour, queue, msg, ts, run_us, wait_us, cause, journal, seq FROM (
  SELECT *, hour(timestamp_micros(ts)) AS hour, row_number() OVER (
    PARTITION BY date, hour(timestamp_micros(ts)), queue
    ORDER BY run_us DESC, journal, seq) AS place
  FROM {{events}} WHERE run_us IS NOT NULL)
WHERE place <= {SLOWEST}
"""

Days = dict[str, dict[int, Hour]]


def compute(events: DataFrame) -> Days:
    """Return the gold of every hour of which there are events: by date and hour."""
    spark, days = events.sparkSession, Days()
    for row in spark.sql(_COUNTS_SQL, events=events).collect():
        _count(days.setdefault(row.date, {}).setdefault(row.hour, Hour()), row)
    durations = spark.sql(_DURATIONS_SQL, events=events)
    for row in spark.sql(_HISTOGRAMS_SQL, durations=durations).collect():
        for queue in (row.queue, None):
            _add_bucket(days[row.date][row.hour].of(queue), row)
    for row in _percentiles(durations):
        _set_percentile(days[row.date][row.hour].of(row.queue), row)
    for row in spark.sql(_SLOWEST_SQL, events=events).collect():
        slow = row.asDict()
        days[slow.pop("date")][slow.pop("hour")].slowest.append(slow)
    return days


def percentiles_of_days(events: DataFrame) -> dict[str, dict[str | None, Part]]:
    """Return, by date and queue (None: all), parts that have exact percentiles only."""
    durations = events.sparkSession.sql(_DURATIONS_SQL, events=events)
    days: dict[str, dict[str | None, Part]] = {}
    for row in _percentiles(durations.withColumn("hour", F.lit(None).cast("int"))):
        part = days.setdefault(row.date, {}).setdefault(row.queue, Part())
        _set_percentile(part, row)
    return days


def _count(hour: Hour, row: Row) -> None:
    equal = Moved(row.lines, row.messages, row.riders)
    hour.move(row.journal, row.was, row.state, equal)
    for queue in (row.queue, None):
        hour.of(queue).count(COUNT_OF.get(row.ev), row.cause, equal)


def _add_bucket(part: Part, row: Row) -> None:
    bucket = min(row.bucket, BUCKETS - 1)
    more = [*[0] * bucket, row.number]
    if row.kind == "wait":
        part.wait_hist = added((part.wait_hist, more))
    else:
        part.run_hist = added((part.run_hist, more))


def _percentiles(durations: DataFrame) -> list[Row]:
    """Return, of each group, the values beside each percentile, the least one first."""
    sql = durations.sparkSession.sql
    rows: list[Row] = sql(_PERCENTILES_SQL, durations=durations).collect()
    return sorted(rows, key=lambda row: float(row.part))


def _set_percentile(part: Part, row: Row) -> None:
    at = row.part * (row.total - 1)
    value = round(row.low + (row.high - row.low) * (at - math.floor(at)))
    (part.wait if row.kind == "wait" else part.run).append(value)


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
    exact = percentiles_of_days(at.events(over)) if over else {}
    days = {}
    for each in group:
        whole = {**each.kept, **hours.get(each.date, {})}
        gold_parts.write_hours(at.gold, each.date, each.upto, whole)
        days[each.date] = day_of(whole)
        if each.over:
            days[each.date].be_exact(exact.get(each.date, {}))
    return days


def _hours(at: History, group: Sequence[Touched]) -> Days:
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
    return compute(events.where(wanted))


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
