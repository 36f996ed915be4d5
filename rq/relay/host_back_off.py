"""Which hosts the relay does not ask for a while: one file for all its workers.

A host that does not answer is asked by one message at a time; the others wait until that
try has ended. So a dead host takes a slot now and then, and never all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rq import back_off, config
from rq.config import files
from rq.errors import BadConfig
from rq.layout import QueueDir
from rq.proc import locks
from rq.words.nesting import Json

FILE = "backoff.json"
LOOK = 5.0  # seconds until the others look again whether the try has ended
PROBE = 65.0  # no try is silent for longer, unless its process has died
CEILING = 300.0

_Result = TypeVar("_Result")


@dataclass(slots=True, kw_only=True)
class Row:
    """What is known of a host, or of a queue of it, that failed; times are epoch seconds."""

    failures: int = 0
    noted: float = 0.0  # when the last failure was noted
    tried: float = 0.0  # when a message began to try it; 0 when none does
    until: float = 0.0  # nobody asks before that
    reason: str = ""


Table = dict[str, Row]  # by http://HOST:PORT, or that and the path of a queue


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now."""

    seconds: int
    reason: str
    name: str  # of the host or queue that is not asked


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """A host, or a queue of it, that did not answer or could not take a message."""

    name: str  # http://HOST:PORT, or that and the path of a queue
    failures: int
    until: float  # epoch seconds; from then on one message asks
    is_tried: bool  # one does at this moment
    reason: str


# ---- rules, pure


def begin(table: Table, names: Iterable[str], now: float) -> Wait | None:
    """Return how long to wait before anyone of `names` may be asked; None: now, and
    then the asker is the only one for a while."""
    rows = {name: table[name] for name in names if name in table}
    # Longer than a pause ever is: noted before the clock was put back.
    last = now + CEILING + 1
    waiting = {name: row for name, row in rows.items() if now < row.until <= last}
    if waiting:
        name, row = max(waiting.items(), key=lambda pair: pair[1].until)
        return Wait(math.ceil(row.until - now), row.reason, name)
    for name, row in rows.items():
        if now < row.tried + PROBE <= last:
            return Wait(math.ceil(LOOK), row.reason, name)
    for row in rows.values():
        row.tried = now
    return None


def failed(table: Table, name: str, begun: float, now: float, reason: str) -> int:
    """Note that `name` was asked at `begun` in vain; return the seconds to wait."""
    row = table.setdefault(name, Row())
    if row.noted <= begun:  # those who failed together have failed once
        row.failures += 1
    pause = back_off.delay(row.failures, 1.0, CEILING)
    row.noted, row.tried, row.until, row.reason = now, 0.0, now + pause, reason
    return math.ceil(pause)


def ended(table: Table, names: Iterable[str]) -> None:
    """Note that the message that tried `names` has its answer."""
    for name in names:
        if name in table:
            table[name].tried = 0.0


# ---- the file


def change(queue: QueueDir, act: Callable[[Table], _Result]) -> _Result:
    """Let `act` read and change the table; others wait meanwhile."""
    turn = locks.lock_waiting(queue.path / f".{FILE}.lock")
    try:
        table = read(queue)
        before = repr(table)
        result = act(table)
        if repr(table) != before:
            rows = {name: _to_json(row) for name, row in table.items()}
            files.write_cache(_path(queue), rows)
        return result
    finally:
        os.close(turn)


def ls(queue: QueueDir, now: float) -> list[BackOff]:
    """Return which hosts and queues are not asked now, those that failed most first."""
    entries = [
        BackOff(
            name=name,
            failures=row.failures,
            until=row.until,
            is_tried=row.until <= now < row.tried + PROBE,
            reason=row.reason,
        )
        for name, row in read(queue).items()
    ]
    return sorted(entries, key=lambda entry: (-entry.failures, entry.name))


def pardon(queue: QueueDir, host: str) -> None:
    """Let a host and all its queues be asked at once."""
    if any(_is_of(name, host) for name in read(queue)):
        change(queue, lambda table: _forget(table, host))


def _forget(table: Table, host: str) -> None:
    for name in [name for name in table if _is_of(name, host)]:
        del table[name]


def _is_of(name: str, host: str) -> bool:
    return name == host or name.startswith(f"{host}/")


def read(queue: QueueDir) -> Table:
    """Return the table; a damaged one is as good as none."""
    try:
        data = config.read_json(_path(queue))
    except BadConfig:
        return {}
    rows = {name: _row(value) for name, value in data.items()}
    return {name: row for name, row in rows.items() if row is not None}


def _to_json(row: Row) -> dict[str, Json]:
    return {
        "failures": row.failures,
        "noted": row.noted,
        "asked": row.tried,
        "until": row.until,
        "reason": row.reason,
    }


def _row(value: object) -> Row | None:
    """Return a row of the file, None when it is none."""
    if not isinstance(value, dict):
        return None
    try:
        return Row(
            failures=int(value["failures"]),
            noted=float(value["noted"]),
            tried=float(value["asked"]),
            until=float(value["until"]),
            reason=str(value["reason"]),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _path(queue: QueueDir) -> Path:
    return queue.path / FILE
