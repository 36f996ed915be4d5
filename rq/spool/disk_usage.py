"""The bytes on disk of a queue's messages, by state.

Measured minute by minute, and remembered until a minute changes: the mtime of its
directory tells that. Dismissed messages lie in one directory; there a minute has changed
when its ids have.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple

from rq.errors import is_busy
from rq.files import beneath
from rq.layout import QueueDir, folder
from rq.spool import folders
from rq.words.states import HASHED, State

MOST_LOOKED = 100_000  # files of one message that are measured
DEEPEST = 64
SMALL = 1024 * 1024  # bytes
SETTLED = 60.0  # seconds; what changed later may change again with the same mtime

# A stamp and a weight for each of 100 minutes: 1,600 bytes an hour.
_Hours = dict[str, "array[int]"]


class _Minute(NamedTuple):
    hour: str
    number: int
    stamp: int  # 0: nothing is to be remembered of it
    ids: Callable[[], list[str]]  # of its messages, newest first


class DiskUsage:
    """What the messages of a queue weigh, minute by minute; in any thread.

    Remembered are those minutes that the last look has come to; after a start, none.
    """

    def __init__(self, queue: QueueDir) -> None:
        self.queue = queue
        self._remembered: dict[State, _Hours] = {}

    def too_heavy(self, state: State, size: int) -> str | None:
        """Return the newest message that does not fit in `size` bytes with those after
        it; None: there is none."""
        before = self._remembered.get(state, {})
        seen: _Hours = {}
        try:
            for minute in _newest_first(self.queue, state):
                weight = _recalled(before, minute)
                if weight is None or weight > size:
                    weight = 0
                    for msg_id in minute.ids():
                        weight += weigh(self.queue, folder(state, msg_id))
                        if weight > size:
                            return msg_id
                size -= weight
                _remember(seen, minute, weight)
            return None
        finally:
            self._remembered[state] = (
                seen  # whole: another thread may be reading the other
            )


def _recalled(before: _Hours, minute: _Minute) -> int | None:
    hour = before.get(minute.hour)
    if hour is None or not minute.stamp or hour[2 * minute.number] != minute.stamp:
        return None
    return hour[2 * minute.number + 1]


def _remember(seen: _Hours, minute: _Minute, weight: int) -> None:
    hour = seen.get(minute.hour)
    if hour is None:
        hour = seen[minute.hour] = array("q", bytes(1600))
    hour[2 * minute.number] = minute.stamp
    hour[2 * minute.number + 1] = weight


def _newest_first(queue: QueueDir, state: State) -> Iterator[_Minute]:
    if state not in HASHED:
        ids = folders.list_state(queue, state)
        for when, some in groupby(ids, lambda msg_id: msg_id[:13]):
            listed = list(some)
            stamp = hash(tuple(listed))
            yield _Minute(when[:11], int(when[11:]), stamp, partial(list, listed))
        return
    for path in folders.minutes(queue, state):
        hour, _, number = path.rpartition("/")
        stamp = _stamp(queue, path)  # before its messages are listed
        yield _Minute(hour, int(number), stamp, partial(folders.in_minute, queue, path))


def _stamp(queue: QueueDir, path: str) -> int:
    try:
        changed = os.stat(queue.path / path).st_mtime_ns
    except OSError:
        return 0
    return changed if changed < (time.time() - SETTLED) * 1e9 else 0


# ---- one message


def weigh(queue: QueueDir, path: str) -> int:
    """Return the bytes of all files in a folder of a queue; 0 when it is gone.

    No link is followed, and of what a script has made deeper or more numerous than any
    use is, the rest is not looked at.
    """
    total, looked = 0, 0
    below = [path]
    with beneath.top(queue.path) as top:
        while below and looked < MOST_LOOKED:
            at = below.pop()
            for name, info in _looked_at(at, top):
                looked += 1
                if stat.S_ISREG(info.st_mode):
                    total += _bytes(info)
                elif stat.S_ISDIR(info.st_mode) and at.count("/") < DEEPEST:
                    below.append(f"{at}/{name}")
    return total


def _bytes(info: os.stat_result) -> int:
    """Return the size of a file; of a large one what the disk holds of it: holes must
    not make other messages go."""
    if info.st_size <= SMALL:
        return info.st_size
    return min(info.st_size, info.st_blocks * 512)


def _looked_at(path: str, top: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        fd = beneath.open_dir(path, top)
    except OSError as error:
        if is_busy(error):  # what is remembered as nothing would never weigh again
            raise
        return
    try:
        with os.scandir(fd) as entries:
            for entry in islice(entries, MOST_LOOKED):
                with contextlib.suppress(OSError):
                    yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(fd)
