"""Gold: what happened per queue and hour, computed for whole hours at a time.

An hour is a sum over its events, whenever they came: late ones change exactly their hour
and their day. Spark sorts and sums, and keeps no value of a whole day in memory.
"""

from __future__ import annotations

import math

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from rq.published import BUCKETS, PERCENTS, added
from rq.spark.gold_parts import SLOWEST, Hour, Moved, Part
from rq.words.states import Event

# What an event adds to; one that names riders or several messages adds as many.
_COUNTED = {
    Event.COMMIT: "accepted",
    Event.CLAIM: "started",
    Event.FINISH: "done",
    Event.RELAY: "relayed",
    Event.FAIL: "err",
    Event.RETRY: "retries",
    Event.RECOVER: "lost",
}
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
        hour.of(queue).count(_COUNTED.get(row.ev), row.cause, equal)


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
