"""Processes that hold a lease of a queue: found, told to end, made to end."""

from __future__ import annotations

import logging
import os
import signal
import time
import zlib
from typing import Any

from rq.errors import Refused
from rq.layout import QueueDir
from rq.logs import fields
from rq.proc import locks, processes

_log = logging.getLogger(__name__)


def prefix_of(queue: QueueDir, journal: str) -> str:
    """Return what RQ_LEASE starts with for workers of this queue in this place."""
    place = zlib.crc32(os.fsencode(os.path.realpath(queue.path)))
    return f"{queue.name}/{journal}{place:08x}/"


def end_left(queue: QueueDir, prefix: str, grace: float) -> list[processes.Found]:
    """End every process that an earlier owner left; return those that do not end.

    Refused when one holds a lease and cannot be found.
    """
    slots = [queue.path / "lease" / name for name in os.listdir(queue.path / "lease")]
    held = [slot for slot in slots if locks.is_locked(slot)]
    for one in processes.find_leases(prefix, held):
        _log.warning(
            "a process of an earlier owner is still at work; RQ ends it: %s",
            fields(pid=one.pid, msg_id=one.msg_id),
        )
        os.close(one.pidfd)
    left = end_processes(prefix, held, grace)
    hidden = [] if left else [slot for slot in held if locks.is_locked(slot)]
    if hidden:
        # Without /proc, say: its message would run a second time beside it.
        raise Refused(
            f"a process of an earlier owner holds {hidden[0]} and cannot be found here: "
            "end it, and the queue starts"
        )
    return left


def _found(prefix: str, slots: list[Any], msg_id: str | None) -> list[processes.Found]:
    """Return all that `find_leases` finds; none stays open when it cannot go on."""
    found: list[processes.Found] = []
    try:
        for one in processes.find_leases(prefix, slots, msg_id):
            found.append(one)
    except OSError:
        for one in found:
            os.close(one.pidfd)
        raise
    return found


def end_processes(
    prefix: str,
    slots: list[Any],
    grace: float,
    msg_id: str | None = None,
    patience: float = 5.0,
) -> list[processes.Found]:
    """TERM, wait, KILL all holders of a lease until none is left; return the immortal.

    Blocks; meant for starts and for threads. One look that finds nobody proves nothing:
    a process may have forked after the look began and ended before its turn came. So
    nobody has to be found twice in a row, with every slot free. With `msg_id` only
    those of that message are looked for.
    """
    deadline = time.monotonic() + grace
    told: set[int] = set()
    clear = 0
    while True:
        left = _found(prefix, slots, msg_id)
        late = time.monotonic() > deadline
        for one in left:
            if late or one.pid not in told:
                processes.signal_found(one, signal.SIGKILL if late else signal.SIGTERM)
                told.add(one.pid)
        clear = 0 if left else clear + 1
        free = clear > 1 and not any(locks.is_locked(slot) for slot in slots)
        if free or time.monotonic() > deadline + patience:
            return left
        for one in left:
            os.close(one.pidfd)
        if clear != 1:
            time.sleep(0.02)
