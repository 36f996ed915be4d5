"""Slots of a queue on Spark: rounds of long tasks, one for each slot, that work under
leases on the queue's messages over HTTP. The queue's host needs no way to them, and they
need no file of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import h11
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import rq
from rq.config import files
from rq.errors import BadInput, Refused
from rq.spark import failures, lease_task
from rq.spark.lease_task import Ended, Given

ROUND = 300.0  # seconds: of a task, so that a lost slot is back after so long at most
_TRIES = 3  # rounds in a row that fail
_FOR_GOOD = (2, 3, 4)  # exit statuses of an agent: wrong words, no such queue, refused
_PAUSE = 5.0  # seconds behind a round that failed
Files: TypeAlias = Mapping[str, Path]  # by their names in a tar
# Of RQ, what no agent needs.
_CACHE = frozenset({"__pycache__"})
_LEFT_OUT = _CACHE | frozenset({"bundled", "conf", "shim", "static", "templates"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is to be done where."""

    url: str  # of the queue
    slots: int
    seconds: float | None  # None: until told to end
    script: Path | None  # a directory with `run`; None: the one that the queue shares
    token: str | None = field(repr=False)  # no trace of Python shows it
    insecure: bool
    label: str


@dataclass(frozen=True, slots=True)
class Ear:
    """What tells a run to end, and what it says."""

    stop: threading.Event
    say: Callable[[str], None]


def run(spark: SparkSession, work: Work, ear: Ear) -> None:
    """Work until the time is over, or told to stop; Refused when no slot can work."""
    with ThreadPoolExecutor(1) as pool:
        # Java cannot be told anything by a thread that waits for it.
        rounds = pool.submit(_rounds, spark, work, ear)
        rounds.add_done_callback(lambda _: ear.stop.set())
        ear.stop.wait()
        if not rounds.done():
            spark.sparkContext.cancelAllJobs()
        rounds.result()


def _rounds(spark: SparkSession, work: Work, ear: Ear) -> None:
    cloudpickle.register_pickle_by_value(lease_task)
    package = _ship(spark, "rq", _packages())
    script = (
        None if work.script is None else _ship(spark, "script", _files(work.script))
    )
    until = None if work.seconds is None else time.monotonic() + work.seconds
    failed = 0
    while (left := _left(until)) > 0 and not ear.stop.is_set():
        given = Given(
            url=work.url,
            seconds=max(1.0, left),
            package=package,
            script=script,
            token=work.token,
            insecure=work.insecure,
            label=work.label,
        )
        why = _round(spark, given, work.slots, ear)
        failed = failed + 1 if why else 0
        if failed == _TRIES:
            raise Refused(why)
        if why:
            ear.say(why)
            ear.stop.wait(max(0.0, min(_PAUSE, _left(until))))


def _left(until: float | None) -> float:
    return ROUND if until is None else min(ROUND, until - time.monotonic())


def _round(spark: SparkSession, given: Given, slots: int, ear: Ear) -> str:
    """Run one task for each slot; return why none of them has worked. Refused when the
    queue's host will never give them anything."""
    from py4j.protocol import Py4JError

    numbers = spark.sparkContext.parallelize(range(slots), slots)
    try:
        ended = numbers.mapPartitions(lease_task.slots(given)).collect()
    except Py4JError as error:
        if ear.stop.is_set():
            return ""  # they were cancelled
        return failures.sentence(error) or f"Spark: {failures.first_line(error)}"
    return _why_none_worked(ended, ear)


def _why_none_worked(ended: Sequence[Ended], ear: Ear) -> str:
    """Tell of the slots that have failed; return why, if all have."""
    bad = [f"{host}: {text}" for host, status, text in ended if status != 0]
    if len(bad) == len(ended):
        if all(status in _FOR_GOOD for _, status, _ in ended):
            raise Refused(bad[0])
        return bad[0]
    for text in dict.fromkeys(bad):
        ear.say(text)
    return ""


# ---- what travels


def _packages() -> Files:
    """Return RQ as an agent needs it, and what it imports that is Python alone."""
    return {
        os.path.join(package.name, name): path
        for package in (Path(rq.__file__).parent, Path(h11.__file__).parent)
        for name, path in _files(package, _LEFT_OUT).items()
    }


def _files(directory: Path, left_out: frozenset[str] = _CACHE) -> dict[str, Path]:
    """Return the regular files below a directory, by their names in it."""
    named = {str(path.relative_to(directory)): path for path in directory.rglob("*")}
    return {
        name: path
        for name, path in named.items()
        if path.is_file() and left_out.isdisjoint(Path(name).parts)
    }


def _ship(spark: SparkSession, kind: str, wanted: Files) -> str:
    """Give all tasks files, as a tar named by its content; return the name."""
    data = _packed(wanted)
    place = Path(str(spark.conf.get("spark.local.dir"))) / "ship"
    name = f"{kind}-{hashlib.sha256(data).hexdigest()[:32]}.tar.gz"
    files.make_dir(place)
    files.write_bytes(place / name, data)
    spark.sparkContext.addFile(str(place / name))
    return name


def _packed(wanted: Files) -> bytes:
    """Return a tar of files, the same for the same files; BadInput when one cannot be
    read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, path in sorted(wanted.items()):
            about = tarfile.TarInfo(name)
            try:
                data = path.read_bytes()
                about.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            except OSError as error:
                raise BadInput(f"{path} cannot be read: {error.strerror}") from None
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), 6, mtime=0)
