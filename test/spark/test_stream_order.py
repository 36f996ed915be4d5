"""In which order Spark asks the source of a stream: what acknowledging relies on.

A probe writes down each call, and what the query's logs held then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

datasource = pytest.importorskip("pyspark.sql.datasource")

from pyspark import cloudpickle  # noqa: E402
from pyspark.sql.streaming.datasource import (  # noqa: E402
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

# The workers of Spark cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Probe(datasource.DataSource):
    """A stream of whole numbers, two of them a batch."""

    @classmethod
    def name(cls):
        return "probe"

    def schema(self):
        return "n int"

    def streamReader(self, schema):  # noqa: N802
        return ProbeReader(self.options["log"], self.options["until"])


class ProbeReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells what it is asked."""

    def __init__(self, log, until):
        self.place, self.until = Path(log), int(until)

    def say(self, call, **more):
        logs = {
            name: sorted(
                int(one.name) for one in (self.place / "query" / name).glob("[0-9]*")
            )
            for name in ("offsets", "commits")
        }
        with (self.place / "calls").open("a") as file:
            file.write(json.dumps({"call": call, **more, **logs}) + "\n")

    def initialOffset(self):  # noqa: N802
        return {"n": 0}

    def getDefaultReadLimit(self):  # noqa: N802
        return ReadMaxRows(2)

    def prepareForTriggerAvailableNow(self):  # noqa: N802
        self.say("prepare")

    def latestOffset(self, start, limit):  # noqa: N802
        self.say("latest", start=start["n"])
        return {"n": min(start["n"] + 2, self.until)}

    def partitions(self, start, end):
        self.say("partitions", start=start["n"], end=end["n"])
        return [datasource.InputPartition((start["n"], end["n"]))]

    def read(self, partition):
        yield from ((n,) for n in range(*partition.value))

    def commit(self, end):
        self.say("commit", end=end["n"])


def run(spark, place, until):
    """Let a query take what there is; return the calls since."""
    spark.dataSource.register(Probe)
    log = place / "calls"
    log.unlink(missing_ok=True)
    stream = spark.readStream.format("probe").options(log=str(place), until=str(until))

    def sink(rows, number):
        with log.open("a") as file:
            file.write(json.dumps({"call": "sink", "batch": number}) + "\n")

    query = (
        stream.load()
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(place / "query"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return [json.loads(line) for line in log.read_text().splitlines()]


def of(calls, name):
    return [one for one in calls if one["call"] == name]


def test_what_is_acknowledged_has_been_committed_by_the_query(spark, tmp_path):
    calls = run(spark, tmp_path, 5)
    assert [one["batch"] for one in of(calls, "sink")] == [0, 1, 2]
    ends = {0: 2, 1: 4, 2: 5}

    # A batch is planned only when its offsets are in the write-ahead log.
    for number, one in enumerate(of(calls, "partitions")):
        assert one["end"] == ends[number]
        assert one["offsets"][-1] == number
        assert number not in one["commits"]

    # commit(end of N - 1) comes with the making of N, never at the end.
    commits = of(calls, "commit")
    assert [one["end"] for one in commits] == [2, 4]
    for number, one in enumerate(commits):
        assert number in one["commits"]

    # latestOffset(start) is asked behind what the commit log holds: also at the end.
    by_end = {end: number for number, end in ends.items()}
    latest = of(calls, "latest")
    assert latest[-1]["start"] == 5
    for one in latest:
        assert one["start"] == 0 or by_end[one["start"]] in one["commits"]


def test_the_next_start_acknowledges_what_the_last_one_left(spark, tmp_path):
    run(spark, tmp_path, 3)
    calls = run(spark, tmp_path, 4)
    assert of(calls, "latest")[0]["start"] == 3
    assert [one["batch"] for one in of(calls, "sink")] == [2]
