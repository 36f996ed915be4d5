"""What a start that writes notes of itself, and what one that was killed has left of it.

A directory of its own, locked while it lives, tells where it puts files, and what is decided.
The next start that writes removes what others have left that decided nothing, and what was
decided long ago for messages that have ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rq import config
from rq.config import files
from rq.errors import RQError
from rq.proc import locks
from rq.spark import targets
from rq.spark.staging import Stage
from rq.spark.targets import OURS
from rq.words.states import State

REMEMBERED = 7 * 86400.0  # seconds, at least
# Where a message is that may run again. It may move while it is looked for.
_MAY_RUN = (State.QUE, State.RUN, State.ERR, State.DISMISSED, State.QUE, State.RUN)
LOCK, PLACES, LIST, DONE = "lock", "places.json", "list.json", "done"


def enter(own: Path) -> int:
    """Make and lock the directory of a key; remove those of starts that were killed."""
    files.make_dir(own.parent)
    turn = locks.lock_waiting(own.parent / LOCK)
    try:
        left = list(_left(own.parent))
        files.make_dir(own)
        lock = locks.lock_waiting(own / LOCK)
    finally:
        os.close(turn)
    for path, held in left:
        # What lies in a store that is away is removed by the next start.
        with contextlib.suppress(OSError, RQError):
            discard(_placed(path))
            files.remove_dir(path)
        os.close(held)
    return lock


def _left(place: Path) -> Iterator[tuple[Path, int]]:
    """Give the directories that no batch needs any more, locked."""
    for path in place.iterdir():
        if not path.is_dir() or not _is_over(path):
            continue
        try:
            held = locks.lock(path / LOCK)
        except FileNotFoundError:  # another start has just removed it
            continue
        if held is None:
            continue
        if _is_over(path):  # still: until now it may have been at work, and decided
            yield path, held
        else:
            os.close(held)


def _is_over(path: Path) -> bool:
    """Whether a start has decided nothing, or that long ago and for messages that have
    ended."""
    try:
        decided = (path / LIST).stat().st_mtime
    except FileNotFoundError:
        return True
    is_old = time.time() - decided > REMEMBERED
    return is_old and has(path, DONE) and not _may_run_again(path)


def _may_run_again(path: Path) -> bool:
    """Whether a message of a decision is neither done nor removed, or cannot be seen."""
    try:
        decided = json.loads((path / LIST).read_bytes())
        queue = config.find_root(None).queue(path.parent.name)
        messages = decided.get("messages", ())
        return any(
            queue.message(state, msg_id).exists()
            for msg_id in messages
            for state in _MAY_RUN
        )
    except OSError:
        return True


def discard(stages: Sequence[Stage]) -> None:
    for stage in stages:
        place = targets.target(stage.where)
        with contextlib.suppress(FileNotFoundError):
            place.system.delete_dir(
                f"{place.path}/{OURS}/{stage.key.partition('/')[0]}"
            )


def has(own: Path, name: str) -> bool:
    return (own / name).is_file()


def _placed(own: Path) -> list[Stage]:
    """Return where a start was about to put something."""
    try:
        entries: list[dict[str, Any]] = json.loads((own / PLACES).read_bytes())
    except FileNotFoundError:
        return []
    return [stage(entry) for entry in entries]


def stage(entry: Mapping[str, Any]) -> Stage:
    return Stage(**{**entry, "by": tuple(entry["by"])})
