"""Which hosts are left alone for a while: one file for all workers of the queue.

A host that does not answer is asked by one message at a time, the others wait for what
comes of it. So it takes a slot now and then, and never all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq import back_off, config
from rq.config import files
from rq.errors import BadConfig
from rq.layout import QueueDir
from rq.proc import locks

FILE = "backoff.json"
LOOK = 5.0  # seconds between looks of the others at what came of it
PROBE = 65.0  # no try is silent for longer, unless its process has died
CEILING = 300.0

_ROW = {"failures", "noted", "asked", "until", "reason"}
_Table = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now."""

    seconds: int
    reason: str
    name: str  # of who is left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A host, or a queue of it, that did not answer or could not take a message."""

    name: str  # http://HOST:PORT, or that and the path of a queue
    failures: int
    until: float  # epoch seconds; from then on one message asks
    asked: bool  # one does at this moment
    reason: str


# ---- rules, pure: the table is {name: row}, the fields of a row as in _ROW


def begin(table: _Table, names: Iterable[str], now: float) -> Wait | None:
    """Return how long to wait before anyone of `names` may be asked; None: now, and
    then the asker is the only one for a while."""
    due = {name: table[name] for name in names if name in table}
    # Longer than a pause ever is: noted before the clock was put back.
    last = now + CEILING + 1
    late = {name: one for name, one in due.items() if now < one["until"] <= last}
    if late:
        name, one = max(late.items(), key=lambda pair: float(pair[1]["until"]))
        return Wait(math.ceil(one["until"] - now), str(one["reason"]), name)
    for name, one in due.items():
        if now < one["asked"] + PROBE <= last:
            return Wait(math.ceil(LOOK), str(one["reason"]), name)
    for one in due.values():
        one["asked"] = now
    return None


def failed(table: _Table, name: str, begun: float, now: float, reason: str) -> int:
    """Note that `name` was asked at `begun` in vain; return the seconds to wait."""
    one = table.setdefault(name, {"failures": 0, "noted": 0.0})
    if one["noted"] <= begun:  # those who failed together have failed once
        one["failures"] += 1
    pause = back_off.delay(one["failures"], 1.0, CEILING)
    one.update(noted=now, asked=0.0, until=now + pause, reason=reason)
    return math.ceil(pause)


def asked(table: _Table, names: Iterable[str]) -> None:
    """Note that whoever asked `names` has had what there was to hear."""
    for name in names:
        if name in table:
            table[name]["asked"] = 0.0


# ---- the file


def change(queue: QueueDir, act: Callable[[_Table], Any]) -> Any:
    """Let `act` read and change the table; others wait meanwhile."""
    turn = locks.lock_waiting(queue.path / f".{FILE}.lock")
    try:
        table = read(queue)
        before = repr(table)
        found = act(table)
        if repr(table) != before:
            files.write_cache(_path(queue), table)
        return found
    finally:
        os.close(turn)


def ls(queue: QueueDir, now: float) -> list[Left]:
    """Return who is left alone, those that failed most often first."""
    found = [
        Left(
            name=name,
            failures=int(one["failures"]),
            until=float(one["until"]),
            asked=one["until"] <= now < one["asked"] + PROBE,
            reason=str(one["reason"]),
        )
        for name, one in read(queue).items()
    ]
    return sorted(found, key=lambda one: (-one.failures, one.name))


def pardon(queue: QueueDir, name: str) -> None:
    """Let a host and all its queues be asked at once."""
    if any(_is_of(one, name) for one in read(queue)):
        change(queue, lambda table: [table.pop(o) for o in [*table] if _is_of(o, name)])


def _is_of(name: str, host: str) -> bool:
    return name == host or name.startswith(f"{host}/")


def read(queue: QueueDir) -> _Table:
    """Return the table; a damaged one is as good as none."""
    try:
        found = config.read_json(_path(queue))
    except BadConfig:
        return {}
    return {name: one for name, one in found.items() if _is_row(one)}


def _is_row(one: object) -> bool:
    return isinstance(one, dict) and set(one) >= _ROW


def _path(queue: QueueDir) -> Path:
    return queue.path / FILE
