"""The process of one queue, for tests: SIGUSR1 lets it die at the point that a file names,
and what else takes hours or gigabytes is made small by its environment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from rq.files import durable
from rq.journal import segments, writer
from rq.queues import feed, housekeeping, process
from rq.queues.control import replies
from rq.queues.maintenance import stall
from rq.queues.runner import abort
from rq.queues.schedule import rounds
from rq.spool import checkpoint, decisions, events, transactions


def tick(seconds: float) -> None:
    housekeeping.TICK = seconds


def hour(seconds: float) -> None:
    housekeeping.HOUR = seconds
    housekeeping.TICK = housekeeping.SETTLED_IN = seconds / 4


def checkpoint_seconds(seconds: float) -> None:
    checkpoint.AFTER_SECONDS = housekeeping.TICK = seconds


def look(seconds: float) -> None:
    writer.LOOK = seconds


def unknown_seconds(seconds: float) -> None:
    replies.UNKNOWN_SECONDS = seconds


def patience(seconds: float) -> None:
    stall.PATIENCE = seconds


def folder_tries(number: float) -> None:
    abort.TRIES = int(number)


def segment(size: float) -> None:
    segments.SMALLEST = int(size)


def inline(number: float) -> None:
    transactions.INLINE = int(number)


def most(number: float) -> None:
    decisions.MOST = int(number)


def rows(number: float) -> None:
    feed.MOST = int(number)


def askers(number: float) -> None:
    events.MOST_ASKERS = int(number)


def longest_round(seconds: float) -> None:
    rounds._LONGEST = seconds


def rows_again(seconds: float) -> None:
    feed._AGAIN = seconds


SETTINGS: dict[str, Callable[[float], None]] = {
    "TEST_ASKERS": askers,
    "TEST_CHECKPOINT_SECONDS": checkpoint_seconds,
    "TEST_FOLDER_TRIES": folder_tries,
    "TEST_HOUR": hour,
    "TEST_INLINE": inline,
    "TEST_LOOK": look,
    "TEST_MOST": most,
    "TEST_PATIENCE": patience,
    "TEST_ROUND": longest_round,
    "TEST_ROWS": rows,
    "TEST_ROWS_AGAIN": rows_again,
    "TEST_SEGMENT": segment,
    "TEST_TICK": tick,
    "TEST_UNKNOWN_SECONDS": unknown_seconds,
}


def main(root: str, name: str, ready: str, user: str = "") -> int:
    asked = Path(root, f"{name}.crash_at")

    def arm(_signal: int, _frame: object) -> None:
        durable.arm(asked.read_text())
        asked.unlink()

    signal.signal(signal.SIGUSR1, arm)
    for variable, change in SETTINGS.items():
        if value := os.environ.get(variable):
            change(float(value))
    if user:
        os.setgroups([])
        os.setgid(int(user))
        os.setuid(int(user))
    return process.main(Path(root), name, ready_fd=int(ready), life_fd=None)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
