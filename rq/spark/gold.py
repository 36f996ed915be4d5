"""Gold: what happened per queue and hour, computed anew for whole days.

A day is a sum over its events, whenever they came: late ones change exactly their day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Row, SparkSession

from rq.causes import Cause
from rq.nesting import Json
from rq.published import BUCKETS, COUNTS, PERCENTS
from rq.states import Event, State

SLOWEST = 10  # of a queue and day

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
_PERCENTS = ", ".join(str(percent / 100) for percent in PERCENTS)

_COUNTS_SQL = """
SELECT date, queue, journal, hour(timestamp_micros(ts)) AS hour, ev, was, state, cause,
       count(*) AS lines,
       sum(coalesce(array_size(riders), 0)) AS riders,
       sum(coalesce(array_size(msgs), 1)) AS messages
FROM {events} WHERE state IS NOT NULL
GROUP BY ALL
"""
_ATTEMPTS_SQL = """
SELECT date, queue, hour(timestamp_micros(ts)) AS hour, wait_us, run_us
FROM {events} WHERE run_us IS NOT NULL
"""
# Of whole days and of all queues together percentiles cannot be had from hours.
_PERCENTILES_SQL = f"""
SELECT date, queue, hour, count(*) AS attempts,
       percentile(wait_us, array({_PERCENTS})) AS wait,
       percentile(run_us, array({_PERCENTS})) AS run
FROM {{attempts}}
GROUP BY GROUPING SETS ((date, queue, hour), (date, hour), (date, queue), (date))
"""
# The digits of a number in base 2 tell its logarithm exactly.
_HISTOGRAMS_SQL = """
SELECT date, queue, hour, kind, length(bin(greatest(took, 1))) - 1 AS bucket,
       count(*) AS number
FROM {attempts}
LATERAL VIEW stack(2, 'wait', wait_us, 'run', run_us) AS kind, took
WHERE took IS NOT NULL
GROUP BY ALL
"""
_SLOWEST_SQL = f"""
SELECT date, queue, msg, ts, run_us, wait_us, cause FROM (
  SELECT *, row_number() OVER (
    PARTITION BY date, queue ORDER BY run_us DESC, journal, seq) AS place
  FROM {{events}} WHERE run_us IS NOT NULL)
WHERE place <= {SLOWEST} ORDER BY date, run_us DESC, journal, seq
"""

_Key = tuple[str | None, int | None]  # queue and hour; None: all of them


@dataclass(slots=True)
class Part:
    """What happened to a queue in an hour, or to more than that."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    causes: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    wait: list[int] = field(default_factory=list)  # percentiles, µs
    run: list[int] = field(default_factory=list)
    wait_hist: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    run_hist: list[int] = field(default_factory=lambda: [0] * BUCKETS)


@dataclass(slots=True)
class Day:
    """The gold of one day."""

    parts: dict[_Key, Part] = field(default_factory=dict)
    moves: dict[str, dict[str, int]] = field(default_factory=dict)  # by journal
    slowest: list[dict[str, Json]] = field(default_factory=list)
    lines: int = 0

    def of(self, queue: str | None, hour: int | None) -> list[Part]:
        """Return the parts that something of a queue and hour adds to."""
        keys = ((queue, hour), (None, hour), (queue, None), (None, None))
        return [self.parts.setdefault(key, Part()) for key in keys]


def compute(spark: SparkSession, events: DataFrame) -> dict[str, Day]:
    """Return the gold of every day that has events."""
    days: dict[str, Day] = {}
    for row in spark.sql(_COUNTS_SQL, events=events).collect():
        _count(days.setdefault(row.date, Day()), row)
    attempts = spark.sql(_ATTEMPTS_SQL, events=events)
    for row in spark.sql(_PERCENTILES_SQL, attempts=attempts).collect():
        part = days[row.date].parts[row.queue, row.hour]
        part.attempts = row.attempts
        part.wait, part.run = _whole(row.wait), _whole(row.run)
    for row in spark.sql(_HISTOGRAMS_SQL, attempts=attempts).collect():
        for part in days[row.date].of(row.queue, row.hour):
            histogram = part.wait_hist if row.kind == "wait" else part.run_hist
            histogram[min(row.bucket, BUCKETS - 1)] += row.number
    for row in spark.sql(_SLOWEST_SQL, events=events).collect():
        days[row.date].slowest.append(
            {name: row[name] for name in row.asDict() if name != "date"}
        )
    return days


def _whole(values: Sequence[float] | None) -> list[int]:
    return [round(value) for value in values or ()]


def _count(day: Day, row: Row) -> None:
    """Add equal events to the hours and to the moves between states."""
    day.lines += row.lines
    moves = day.moves.setdefault(row.journal, {})
    _move(moves, row.was, row.state, row.messages)
    _move(moves, State.QUE, row.state, row.riders)
    name = _COUNTED.get(row.ev)
    for part in day.of(row.queue, row.hour):
        if name is not None:
            part.counts[name] += row.messages + row.riders
        if row.cause is not None:
            _add(part.causes, row.cause, row.lines)
        _add(part.causes, Cause.DUPLICATE, row.riders)


def _move(moves: dict[str, int], was: str, state: str, number: int) -> None:
    # What is prepared is in no journal, so that nothing can be said of it.
    if was not in (State.NOWHERE, State.PREP):
        _add(moves, was, -number)
    if state not in (State.GONE, State.PREP):
        _add(moves, state, number)


def _add(counts: dict[str, int], name: str, number: int) -> None:
    if number:
        counts[str(name)] = counts.get(name, 0) + number


def summed(
    days: Iterable[Mapping[str, Mapping[str, int]]], journals: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """Return how many messages of each queue are in which state after the moves of all
    days; `journals` names the queue of each journal that counts."""
    total: dict[str, dict[str, int]] = {queue: {} for queue in journals.values()}
    for moves in days:
        for journal, states in moves.items():
            if journal not in journals:
                continue
            for state, number in states.items():
                _add(total[journals[journal]], state, number)
    return total
