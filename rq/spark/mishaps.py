"""What went wrong in Spark, in one sentence for whoever has to do something about it.

Spark tells it in pages; what matters of them is in a few words.
"""

from __future__ import annotations

import re

_OURS = re.compile(r"(?:^|\s)rq\.errors\.\w+: (.+)")
_FULL = "No space left on device"
_MEMORY = re.compile(
    r"OutOfMemoryError|GC overhead limit|SparkOutOfMemory|must be at least \d+"
    r"|Too small maximum heap|Too small initial heap"
)
_PARQUET = re.compile(
    r"(?:file:)?(?P<path>/[^\s'\"`]*\.parquet)[^\n]{0,200}?(?:is not a Parquet file)"
    r"|FAILED_READ_FILE[^\n]*?(?:file:)?(?P<other>/[^\s'\"`]*\.parquet)"
)
_NOISE = re.compile(r"WARNING: |Setting |To adjust |Error occurred during init|\tat ")
_MOST = 300  # characters of what nobody has a sentence for


def sentence(error: BaseException) -> str:
    """Return what an error of Spark means for the history."""
    text = str(error)
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if _FULL in text:
        return (
            "the disk is full, Spark could not write: free some space; "
            "the next round goes on where this one ended"
        )
    if _MEMORY.search(text):
        return (
            "Spark ran out of memory: give it more, in the config of spark-history "
            '"spark": {"conf": {"spark.driver.memory": "4g"}}, or in RQ_SPARK_CONF '
            '{"spark.driver.memory": "4g"}'
        )
    if found := _PARQUET.search(text):
        path = found["path"] or found["other"]
        return (
            f"{path} is damaged: remove it, and `rq spark history --rebuild` makes "
            "the history anew from the journals"
        )
    return f"Spark ended the round: {_first(text)}"


def not_started(error: BaseException, said: str) -> str:
    """Return why a session did not start; `said` is what its Java wrote meanwhile."""
    text = f"{error}\n{said}"
    if _MEMORY.search(text):
        return (
            "Spark did not start, its memory is too small: let spark.driver.memory be "
            "1g or more"
        )
    if _FULL in text:
        return "Spark did not start, the disk is full: free some space"
    return f"Spark did not start: {_first(said)}"


def _first(text: str) -> str:
    """Return the first line that tells something."""
    lines = (line.strip() for line in text.splitlines() if not _NOISE.match(line))
    return next(filter(None, lines), "what Java said is in the log")[:_MOST]
