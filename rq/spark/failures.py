"""What went wrong in Spark, in one sentence for the person who has to mend it.

Spark writes pages about an error; a few words of them matter.
"""

from __future__ import annotations

import re
from pathlib import Path

from rq.spark import remote

_OURS = re.compile(r"(?:^|\s)rq\.errors\.\w+: (.+)")
_AWAY = re.compile(r"(?:^|\s)rq\.errors\.Unreachable: (.+)")
_TABLE = re.compile(r"Generic S3 error.*", re.DOTALL)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_MEMORY = re.compile(r"OutOfMemoryError|GC overhead limit|CANNOT_ACQUIRE_MEMORY")
_TOO_SMALL = re.compile(r"Too small (?:maximum|initial) heap|DRIVER_MEMORY")
_GONE = re.compile(r"Error while sending or receiving|Answer from Java side is empty")
_ENDED = (
    "Java ended in the middle of its work: unless it was killed, the machine was short of "
    "memory"
)
_PARQUET = re.compile(
    r"FAILED_READ_FILE[^\n]*?file:/*(/[^\s'\"]*\.parquet)"
    r"|file:/*(/[^\s'\"]*\.parquet) is not a Parquet file"
)
_STREAM = re.compile(r"^\[STREAM_FAILED\].*? terminated with exception: ")
_JAVA = "An error occurred while calling "
_NOISE = re.compile(r"WARNING: |Setting |To adjust |Error occurred during init|\tat ")
_CAUSED = re.compile(r"^Caused by: (?:[a-z_\d]+\.)*(.+)$", re.MULTILINE)
FULL = "the disk is full, no more could be written: free some space, then try again"
# A Python has ten to fifteen seconds, for some of which Spark has no setting.
_LATE = re.compile(
    "Python worker failed to connect back"
    "|Timed out while waiting for the Python worker"
    "|Python daemon failed to launch worker|Failed to open socket to Python daemon"
    "|STREAMING_PYTHON_RUNNER_INITIALIZATION_(?:TIMEOUT|COMMUNICATION)_FAILURE"
    "|CANNOT_OPEN_SOCKET"
)
_TIMED_OUT = re.compile("SocketTimeoutException|[Tt]imed out")
LATE = (
    "Python did not start in the seconds that Spark gives it: the machine has too much "
    "to do, try again later, or run less beside it"
)
_MOST = 300  # characters of what there is no sentence for


def is_full(text: str) -> bool:
    """Whether Spark says that a disk is full."""
    return _FULL.search(text) is not None


def cause(error: BaseException) -> str | None:
    """Return what an error of Java comes from: the last of its causes; None: it tells
    none. Spark wraps an error several times, and names only the wrapping first."""
    last, text = error, str(error)
    while (inner := getattr(last, "_cause", None)) is not None:
        last = inner
    if last is not error:
        return first_line(last)
    causes = _CAUSED.findall(text)
    return str(causes[-1])[:_MOST] if causes else None


def is_late(text: str) -> bool:
    """Whether Spark says that a Python was not there in time."""
    return _LATE.search(text) is not None


def words(error: BaseException) -> str:
    """Return what an error says, and what those say that it comes from."""
    texts = [str(error)]
    last = error
    while (inner := getattr(last, "_cause", None)) is not None:
        last = inner
        texts.append(str(last))
    return "\n".join(texts)


def sentence(error: BaseException) -> str | None:
    """Return what an error means, if it is one that has a sentence."""
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if is_full(text):
        return FULL
    if _MEMORY.search(text):
        return (
            "Spark ran out of memory: give it more, in the queue's config "
            '"spark": {"conf": {"spark.driver.memory": "4g"}}, or in RQ_SPARK_CONF'
        )
    if _GONE.search(text):
        return _ENDED
    return None


def unreachable(error: BaseException) -> str | None:
    """Return what did not answer a task, in the words of that; None: it was not that."""
    text = words(error)
    away = _AWAY.findall(text)
    if away:
        return str(away[-1])
    table = _TABLE.search(text)  # which DuckDB has read
    is_away = table is not None and remote.is_away(text)
    return " ".join(table[0].split())[:_MOST] if table and is_away else None


def of_round(error: BaseException) -> str:
    """Return why a round of the history ended."""
    if text := sentence(error):
        return text
    if isinstance(error, ConnectionError):
        return _ENDED
    if file := _PARQUET.search(str(error)):
        return damaged(Path(file[1] or file[2]))
    text = words(error)
    if is_late(text) or _TIMED_OUT.search(text):  # a round waits for nothing else
        return LATE
    return (
        f"Spark ended the round: {first_line(error)}; if it does so again, "
        "`rq spark history --rebuild` makes the history anew"
    )


def damaged(file: Path) -> str:
    """Return what to do about a file of the history that cannot be read."""
    return (
        f"{file} is damaged: remove it, then `rq spark history --rebuild` makes the "
        "history anew from the journals"
    )


def not_started(error: BaseException, output: str) -> str:
    """Return why a session did not start; `output` is what its Java wrote meanwhile."""
    text = f"{error}\n{output}"
    if _TOO_SMALL.search(text):
        return (
            "Spark did not start, its memory is too small: let spark.driver.memory be "
            "1g or more"
        )
    if _FULL.search(text):
        return "Spark did not start, the disk is full: free some space"
    if _GONE.search(text) or isinstance(error, ConnectionError):
        return f"Spark did not start: {_ENDED}"
    lines = (line.strip() for line in output.splitlines() if not _NOISE.match(line))
    why = next(filter(None, lines), "what Java wrote is in the log")
    return f"Spark did not start: {why[:_MOST]}"


def first_line(error: BaseException) -> str:
    """Return the line of an error that tells what it is."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0].startswith(_JAVA) and len(lines) > 1:
        return lines[1].lstrip(": ")[:_MOST]
    return _STREAM.sub("", lines[0])[:_MOST]
