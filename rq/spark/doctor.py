"""Prove that Spark works here: its Java, its versions, its ports, a small job."""

from __future__ import annotations

import contextlib
import importlib.metadata
import ipaddress
import os
import platform
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rq.errors import Refused
from rq.spark import java
from rq.spark import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 1_000_000
_GROUPS = 4
_LISTEN = "0A"


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
    every = sockets()
    outside = [sock for sock in every if not sock.on_loopback]
    if outside and sessions.is_here(master):
        places = ", ".join(f"{sock.address}:{sock.port}" for sock in outside)
        raise Refused(f"Spark listens for other hosts, at {places}")
    inside = len(every) - len(outside)
    return f"{inside} on loopback, {len(outside)} for other hosts"


# ---- what this process and those it started listen on


@dataclass(frozen=True, slots=True, order=True)
class Listening:
    """A TCP socket that waits for connections."""

    address: str
    port: int

    @property
    def on_loopback(self) -> bool:
        address = ipaddress.ip_address(self.address)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def sockets() -> list[Listening]:
    """List the sockets; none where there is no /proc."""
    inodes = {inode for pid in _family(os.getpid()) for inode in _inodes(pid)}
    return sorted(
        sock
        for name in ("tcp", "tcp6")
        for inode, sock in _table(Path("/proc/net") / name)
        if inode in inodes
    )


def _family(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from _family(int(child))


def _inodes(pid: int) -> Iterator[str]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if link := re.fullmatch(r"socket:\[(\d+)\]", target):
                yield link[1]


def _table(path: Path) -> Iterator[tuple[str, Listening]]:
    try:
        lines = path.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        words = line.split()
        if words[3] == _LISTEN:
            address, _, port = words[1].partition(":")
            yield words[9], Listening(_address(address), int(port, 16))


def _address(text: str) -> str:
    """Return an address that the kernel writes as words of its own byte order."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
