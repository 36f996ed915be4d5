"""Prove that Spark works here: its Java, its versions, its ports, a small job."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rq.errors import Refused
from rq.spark import java, listening
from rq.spark import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 1_000_000
_GROUPS = 4


def examine() -> Iterator[tuple[str, str]]:
    """Give each finding and its name; Refused or NoJava at the first that is wrong."""
    sessions.demand_spark()
    usable = java.find(os.environ)
    yield "java", _of_java(usable)
    yield "versions", ", ".join(_versions())
    begun = time.monotonic()
    spark = sessions.session("rq spark doctor", quiet=True)
    try:
        cores = spark.sparkContext.defaultParallelism
        took = time.monotonic() - begun
        master = spark.sparkContext.master
        yield "session", f"on {master} with {cores} cores, started in {took:.1f} s"
        yield "job", _job(spark)
        yield "ports", _ports(master)
    finally:
        sessions.close(spark)


def _of_java(usable: java.Java) -> str:
    shimmed = "" if usable.has_vector else f", without {java.VECTOR}: by a shim"
    return f"{usable.version} in {usable.home} ({usable.place}{shimmed})"


def _versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for name in ("pyspark", "pandas", "pyarrow"):
        yield f"{name} {importlib.metadata.version(name)}"


def _job(spark: SparkSession) -> str:
    """Count in Java, and in a Python worker, what is known beforehand."""
    begun = time.monotonic()
    from pyspark.sql import functions

    group = functions.col("id") % _GROUPS
    rows = spark.range(_ROWS).groupBy(group.alias("g")).count().collect()
    counts = [int(row["count"]) for row in rows]
    if counts != [_ROWS // _GROUPS] * _GROUPS:
        raise Refused(f"Spark counted {counts} of {_ROWS} numbers in {_GROUPS} groups")
    doubled = spark.range(_GROUPS).mapInArrow(lambda batches: batches, "id long")
    if doubled.count() != _GROUPS:
        raise Refused("a Python worker of Spark lost rows")
    took = time.monotonic() - begun
    return f"counted {_ROWS:,} numbers in {took:.1f} s, Python workers too"


def _ports(master: str) -> str:
    """Return what listens; Refused when other hosts could connect."""
    every = listening.sockets()
    outside = [sock for sock in every if not sock.on_loopback]
    if outside and sessions.is_here(master):
        places = ", ".join(f"{sock.address}:{sock.port}" for sock in outside)
        raise Refused(f"Spark listens for other hosts, at {places}")
    inside = len(every) - len(outside)
    return f"{inside} on loopback, {len(outside)} for other hosts"
