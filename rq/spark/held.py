"""What a person does with a batch that is decided and not in its tables: commit it, when the
table fits again, or give up what it has for one."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from rq.config import files
from rq.errors import BadInput, Busy, Refused
from rq.proc import locks
from rq.spark import delta, targets, unfinished, writes
from rq.spark.writes import Table

_KEY = re.compile(r"[0-9a-f]{24}")


def commit(queue: str, key: str) -> list[Table]:
    """Write what was held; return its tables. BadInput, Held."""
    _open(queue, key)
    return writes.finish(queue, key) or []


def give_up(queue: str, name: str, key: str) -> list[Table]:
    """Write no more what a batch has for a table, and finish the rest of it; return its
    tables. BadInput, Busy, Refused."""
    own = _open(queue, key)
    # A process that is at work on the batch may have written it in a moment.
    lock = locks.lock(own / unfinished.LOCK)
    if lock is None:
        raise Busy(f"{key}: a process is at work on it: say it again later")
    try:
        _demand_not_there(own, name)
        before = [t.plan.name for t, _ in _of_delta(own) if t.is_given_up and t.plan]
        about = {"tables": sorted({*before, name}), "time": time.time()}
        files.write_state(own / writes.GIVEN_UP, about)
    finally:
        os.close(lock)
    return writes.finish(queue, key) or []


def _open(queue: str, key: str) -> Path:
    own = writes.above(queue) / key
    if not _KEY.fullmatch(key) or not writes.is_held_open(own):
        raise BadInput(
            f"{key!r:.60} is no batch of {queue} that is held; `rq spark table held` lists "
            "them"
        )
    return own


def _of_delta(own: Path) -> list[tuple[Table, str]]:
    return [entry for entry in writes.decided_tables(own) if entry[0].plan is not None]


def _demand_not_there(own: Path, name: str) -> None:
    """Raise unless a batch has rows for a table that are not in it."""
    ids = {t.plan.name: (t, app_id) for t, app_id in _of_delta(own) if t.plan}
    if name not in ids:
        raise BadInput(
            f"this batch has nothing for a table {name!r:.80}, only for {', '.join(ids)}"
        )
    table, app_id = ids[name]
    if delta.has(targets.target(table.stage.where), app_id):
        raise Refused(f"{name}: the rows of this batch are in it")
