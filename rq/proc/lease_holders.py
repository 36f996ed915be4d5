"""Finds the processes that hold a lease of a queue, and ends them."""

from __future__ import annotations

import logging
import os
import signal
import time
import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from rq import names
from rq.errors import is_busy
from rq.layout import JOB, QueueDir
from rq.logs import fields
from rq.proc import locks, processes
from rq.words.states import State

OF_ANCESTOR = "ancestor"  # in place of a lease
NAMED = 3  # processes in one sentence
_LARGEST = 2**31 - 1  # number of a process that the kernel can be asked for

_log = logging.getLogger(__name__)


def prefix_of(queue: QueueDir, journal: str) -> str:
    """Return what RQ_LEASE starts with for workers of this queue in this place."""
    place = zlib.crc32(os.fsencode(os.path.realpath(queue.path)))
    return f"{queue.name}/{journal}{place:08x}/"


def end_left(queue: QueueDir, prefix: str, grace: float) -> list[processes.Holder]:
    """End every process that an earlier owner left; return those that do not end, and
    for a slot whose holder cannot be found the lock of that slot.
    """
    slots = [queue.path / "lease" / name for name in os.listdir(queue.path / "lease")]
    held = [slot for slot in slots if locks.is_locked(slot)]
    for holder in processes.find_leases(prefix, held):
        _log.warning(
            "a process of an earlier owner still runs; RQ ends it: %s",
            fields(pid=holder.pid, msg_id=holder.msg_id),
        )
        os.close(holder.pidfd)
    left = end_processes(prefix, held, grace)
    return left + _hidden_in(held, prefix)


def _hidden_in(held: list[Path], prefix: str) -> list[processes.Holder]:
    """Return, for each slot that is locked by a process that was not found, the lock file
    of the slot as its stand-in."""
    hidden = []
    for slot in held:
        if locks.is_locked(slot):
            fd = os.open(slot, os.O_RDWR | os.O_CLOEXEC)
            hidden.append(processes.Holder(0, fd, f"{prefix}{slot.name}/", ""))
    return hidden


def of_ancestor(queue: QueueDir) -> list[processes.Holder]:
    """Return the scripts of the Ruby RQ that still run, by the `pid` in the folders of
    their messages: its stop leaves them, and they hold no lease."""
    scripts = []
    run = queue.path / str(State.RUN)
    # Not by glob: from Python 3.13 on it finds nothing where it cannot look.
    for place in (run / name for name in os.listdir(run) if names.is_msg_id(name)):
        number = _number_in(place / "pid")
        if number is None:
            continue
        if script := processes.find_worker(number, place.name, place / JOB):
            _log.warning(
                "a script of the Ruby RQ still runs; its message waits for its end: %s",
                fields(pid=script.pid, msg_id=script.msg_id),
            )
            scripts.append(replace(script, lease=OF_ANCESTOR))
    return scripts


def _number_in(path: Path) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            text = os.read(fd, 20).strip()
        finally:
            os.close(fd)
    except OSError as error:
        if is_busy(error):
            raise
        return None
    number = int(text) if text.isdigit() else 0
    return number if 1 < number <= _LARGEST else None


def clear(lease: str, slot: Path, since: float, grace: float) -> str:
    """End all that holds a lease whose slot was taken `since` seconds after boot; return
    who holds it still, in a sentence, or "". Blocks."""
    left = end_processes(lease, [slot], grace)
    if left:
        pid = left[0].pid
        state = processes.state_letter(pid)
        for holder in left:
            os.close(holder.pidfd)
        return f"Process {pid} (state {state}) holds its slot and does not end."
    return hidden_sentence(since) if locks.is_locked(slot) else ""


def hidden_sentence(since: float) -> str:
    """Say who may hold a slot and hides it."""
    hidden = processes.find_hidden(since)
    if not hidden:
        return "A process that RQ cannot see holds its slot (descriptor 963)."
    who = " or ".join(f"process {entry.pid} ({entry.name})" for entry in hidden[:NAMED])
    return f"Its slot (descriptor 963) is held by a process that hides it: {who}."


def _holders(
    prefix: str, slots: Sequence[Path], msg_ids: Collection[str] | None
) -> list[processes.Holder]:
    """Return all that `find_leases` finds; none stays open when it cannot go on."""
    holders: list[processes.Holder] = []
    try:
        for holder in processes.find_leases(prefix, slots, msg_ids):
            holders.append(holder)
    except OSError:
        for holder in holders:
            os.close(holder.pidfd)
        raise
    return holders


def end_processes(
    prefix: str,
    slots: Sequence[Path],
    grace: float,
    msg_ids: Collection[str] | None = None,
    patience: float = 5.0,
) -> list[processes.Holder]:
    """TERM, wait, KILL all holders of a lease until none is left; return those that stay.

    Blocks; meant for starts and for threads. A single search that finds no process proves
    nothing: one may have forked after the search began and ended before its turn came. So
    two searches in a row must find none, with every slot free. With `msg_ids` only
    the processes of these messages count.
    """
    deadline = time.monotonic() + grace
    signalled: set[int] = set()
    clear = 0
    while True:
        left = _holders(prefix, slots, msg_ids)
        late = time.monotonic() > deadline
        for holder in left:
            if late or holder.pid not in signalled:
                number = signal.SIGKILL if late else signal.SIGTERM
                processes.signal_holder(holder, number)
                signalled.add(holder.pid)
        clear = 0 if left else clear + 1
        free = clear > 1 and not any(locks.is_locked(slot) for slot in slots)
        if free or time.monotonic() > deadline + patience:
            return left
        for holder in left:
            os.close(holder.pidfd)
        if clear != 1:
            time.sleep(0.02)
