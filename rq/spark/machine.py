"""What broke under Spark: Java, its memory, the master, the executors, the disk.

Such a failure is not the job's: what was at work may succeed when it is tried again.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rq.spark import failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY = "spark.driver.memory"
_PATIENCE = 5.0  # seconds until a Java that answers no more has ended
_OUT_OF_MEMORY = 3  # the exit status of Java by -XX:+ExitOnOutOfMemoryError
_CUT_OFF = re.compile(
    "Error while sending or receiving|Answer from Java side is empty"
    "|An error occurred while trying to connect to the Java server"
    r"|An error occurred while calling \S+\Z"  # and no word of Java's about it
)
_STOPPED = re.compile(
    "All masters are unresponsive|stopped SparkContext|SparkContext was shut down"
)
_EXECUTORS = re.compile("ExecutorLostFailure|FetchFailed|worker lost", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Engine:
    """What a session runs on: its master, and the memory of its Java."""

    master: str
    memory: str


def engine(spark: SparkSession) -> Engine:
    """Return what a session runs on; asked while it still runs."""
    conf = spark.sparkContext.getConf()
    return Engine(spark.sparkContext.master, conf.get(_MEMORY) or "1g")


def failure(error: BaseException, on: Engine) -> str | None:
    """Return what has broken under a session, what it had, and what to do about it;
    None: nothing did, the error is of the job."""
    text = str(error)
    status = _java_status(isinstance(error, ConnectionError | EOFError) or _lost(text))
    if status is not None:
        return _ended(status, on.memory)
    if failures.is_full(text):
        return failures.FULL
    if _STOPPED.search(text):
        return (
            f"the Spark master {on.master} has ended this application, or does not "
            "answer: start it, or read its log"
        )
    if failures.is_late(failures.words(error)):
        return failures.LATE
    if _EXECUTORS.search(text):
        return (
            f"executors of {on.master} were lost: {failures.first_line(error)}; their "
            "logs say why, often it is memory: spark.executor.memory"
        )
    return None


def java_runs() -> bool:
    """Whether this process has a Java, and it has not ended."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    has_java = getattr(context, "_gateway", None) is not None
    return has_java and _java_status(wait=False) is None


def _lost(text: str) -> bool:
    return _CUT_OFF.search(text) is not None or _STOPPED.search(text) is not None


def _java_status(wait: bool) -> int | None:
    """Return the exit status of this process's Java; None: it runs, or there is none."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if process is None:
        return None
    if wait:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
    status: int | None = process.poll()
    return status


def _ended(status: int, memory: str) -> str:
    more = f'in the queue\'s config "spark": {{"conf": {{"{_MEMORY}": "4g"}}}}'
    if status == _OUT_OF_MEMORY:
        return f"Java ran out of memory, it had {memory}: give it more, {more}"
    if status < 0:
        name = signal.Signals(-status).name.removeprefix("SIG")
        return (
            f"Java was ended by {name}, it had {memory} of memory: unless somebody did "
            "it, the machine was short of memory (dmesg tells): give Java less, or run "
            "less beside it"
        )
    return f"Java ended with status {status}: its last words are in the message's log"
