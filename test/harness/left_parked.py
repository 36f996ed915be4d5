"""Queues as they lie while they are parked, made without a process: for thousands at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rq.config import parked
from rq.config.parked import Parked
from rq.layout import JOURNAL, QUEUE_DIRS, Root
from rq.proc import processes

OLD = 1_000_000_000  # epoch seconds: when nothing new has come to their folders


def make_root(where: Any) -> Root:
    root = Root(where)
    for directory in (root.config_dir, root.queues):
        directory.mkdir(parents=True)
    return root


def leave(root: Root, name: str, **facts: Any) -> None:
    """Make a queue that was parked long ago."""
    queue = root.queue(name)
    for directory in QUEUE_DIRS:
        (queue.path / directory).mkdir(parents=True, exist_ok=True)
        if directory == JOURNAL:
            (queue.path / directory / "1").touch()
        os.utime(queue.path / directory, (OLD, OLD))
    queue.config.write_text(json.dumps({"name": name, "park": "1s"}))
    parked.write(queue, left(root, name, **facts))


def left(root: Root, name: str, **facts: Any) -> Parked:
    """Return what a queue leaves that looks as it does now."""
    every: Mapping[str, Any] = {
        "at": OLD,
        "after": 1.0,
        "wakes_at": None,
        "retained_at": OLD,
        "boot": processes.boot_id(),
        "journal": "j",
        "seq": 1,
        "socket": [],
        "stamps": parked.stamps(root, name),
        "answers": {"status": ["UP"], "detail": ["ok", detail(name)]},
    }
    return Parked(**{**every, **facts})


def detail(name: str, **facts: Any) -> dict[str, Any]:
    """Return what a queue with nothing to do answers to `detail`."""
    counts = ("prep", "que", "run", "done", "relayed", "err", "errack")
    series: Sequence[str] = ("accepted", "done", "err", "depth", "leased")
    return {
        "name": name,
        "status": "UP",
        "admin": "UP",
        "paused": None,
        "oper": "UP",
        "reason": None,
        "counts": dict.fromkeys(counts, 0),
        "rows": 0,
        "closed_reason": None,
        "num_workers": 1,
        "slots_used": 0,
        "running": [],
        "elsewhere": None,
        "oldest_due_age": None,
        "next_due": None,
        "series": {word: [0] * 60 for word in series},
        **facts,
    }
