"""Finds out whether somebody has moved or removed ended messages of a stopped queue.

Live messages are listed at each start. Ended ones may be millions, so a start believes
the counts of the checkpoint, unless a directory has changed since it was written.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from rq.layout import QueueDir
from rq.states import HASHED

LOOK_FOR = 1.0  # seconds at a start, at most: the queue does not serve meanwhile


def has_changed(queue: QueueDir) -> bool:
    """Whether a directory of `done` or `relayed` has changed since the checkpoint of a
    clean stop. Looks at directories alone, one a minute of the past, newest first."""
    try:
        since = os.stat(queue.checkpoint).st_ctime_ns
    except FileNotFoundError:
        return True
    end = time.monotonic() + LOOK_FOR
    for state in HASHED:
        for changed in _changes(str(queue.path / state), 3):
            if changed >= since:  # equal: the clock of files has coarse ticks
                return True
            if time.monotonic() > end:
                return False
    return False


def _changes(path: str, depth: int) -> Iterator[int]:
    """Give when a directory changed, and those in it, `depth` levels down."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield os.stat(path).st_ctime_ns
        if depth:
            for name in sorted(filter(str.isdigit, os.listdir(path)), reverse=True):
                yield from _changes(f"{path}/{name}", depth - 1)
