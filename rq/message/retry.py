"""The setting `retry`: which failed attempts are made again, how often, and when.

Pure: the same for scripts, workers that stay, batches, leases, and what a crash has lost.
"""

from __future__ import annotations

import hashlib
from typing import TypedDict

from rq.message import causes

MOST_TIMES = 2**31 - 2
LONGEST = 86_400.0  # seconds of a wait


class Wait(TypedDict):
    """How long a message waits for its next attempt, in seconds."""

    first: float
    factor: float  # by which each wait is longer than the one before
    cap: float  # the longest
    jitter: float  # share by which it is longer or shorter, from 0 to 1


class Retry(TypedDict):
    """The setting `retry`."""

    on: list[int | str]  # exit statuses, "64-78", "SIGKILL", WORDS
    times: int | None  # retries at most; None: as many as `max_count` allows
    wait: Wait


WAIT: Wait = {"first": 0.0, "factor": 1.0, "cap": LONGEST, "jitter": 0.0}
DOUBLING = 2.0  # the factor of a wait that names its first


def covers(
    rule: Retry, cause: str, exit_status: int | None = None, signal: str | None = None
) -> bool:
    """Return whether an attempt that ended so is made again.

    >>> rule: Retry = {"on": [75, "80-89", "SIGTERM", "crash"], "times": 3, "wait": WAIT}
    >>> [covers(rule, "exit", status) for status in (75, 76, 80, 89, 90)]
    [True, False, True, True, False]
    >>> covers(rule, "signal", None, "SIGTERM"), covers(rule, "signal", None, "SIGKILL")
    (True, False)
    >>> covers(rule, "host"), covers(rule, "said_err"), covers(rule, "cancelled")
    (True, False, False)
    """
    ended_by = causes.of(cause)
    words = ended_by.row.on if ended_by else ()
    if "exit" in words and exit_status is None:
        words = tuple(word for word in words if word != "exit")
    if "signal" in words and signal is None:
        words = tuple(word for word in words if word != "signal")
    return any(_is_one(on, words, exit_status, signal) for on in rule["on"])


def _is_one(
    on: int | str, words: tuple[str, ...], exit_status: int | None, signal: str | None
) -> bool:
    if on in words:
        return True
    if isinstance(on, str) and on.startswith("SIG"):
        return "signal" in words and on == signal
    low, high = bounds(on)
    return "exit" in words and exit_status is not None and low <= exit_status <= high


def bounds(on: int | str) -> tuple[int, int]:
    """Return the first and the last exit status that an entry of `on` names; (0, -1) for
    one that names none.

    >>> bounds(75), bounds("64-78"), bounds("crash")
    ((75, 75), (64, 78), (0, -1))
    """
    if isinstance(on, int):
        return on, on
    low, dash, high = on.partition("-")
    return (int(low), int(high)) if dash else (0, -1)


def most_tries(rule: Retry | None, max_count: int) -> int:
    """Return how many counted attempts a message may have: `times` lowers `max_count`.

    >>> rule: Retry = {"on": ["exit"], "times": 3, "wait": WAIT}
    >>> most_tries(rule, 15), most_tries(rule, 2), most_tries(None, 15)
    (4, 2, 15)
    """
    times = None if rule is None else rule["times"]
    return max_count if times is None else min(max_count, times + 1)


def most_retries(tries: int | None, max_count: int) -> int:
    """Return the limit of the retries of a message, as people are told it: `times` of the
    setting where it is what has decided, by the `tries` of the last attempt.

    >>> most_retries(None, 15), most_retries(5, 15), most_retries(2, 2)
    (15, 4, 2)
    """
    return max_count if tries is None or tries >= max_count else tries - 1


def wait(rule: Retry, retries: int, msg_id: str, attempt: int) -> float:
    """Return the seconds before the next attempt; `retries` were counted before this.

    The jitter is that of the message and the attempt: whoever asks again is told the same.

    >>> rule: Retry = {"on": ["exit"], "times": None,
    ...                "wait": {"first": 10, "factor": 2, "cap": 60, "jitter": 0}}
    >>> [wait(rule, n, "20260102.0304.05.006.7", 1) for n in range(5)]
    [10.0, 20.0, 40.0, 60.0, 60.0]
    """
    said = rule["wait"]
    seconds = min(said["cap"], _grown(said, retries))
    if said["jitter"]:
        seconds *= 1.0 + said["jitter"] * (2.0 * _share(msg_id, attempt) - 1.0)
    return min(said["cap"], float(seconds))


def _grown(said: Wait, retries: int) -> float:
    try:
        return said["first"] * said["factor"] ** retries
    except OverflowError:
        return said["cap"]


def _share(msg_id: str, attempt: int) -> float:
    """Return a number from 0 to 1 that looks like chance."""
    digest = hashlib.sha256(f"{msg_id}~{attempt}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
