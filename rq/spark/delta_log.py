"""The log of a Delta table as it lies on disk: synced, and what a power cut has torn of it."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from rq.config import files
from rq.proc import locks

LOG = "_delta_log"
_LOCK = "_rq.lock"  # a name that no reader of Delta looks at
SLACK = 60.0  # seconds by which the clock of files may differ


def take_torn(log: Path) -> bool:
    """Take away the last commit of a log if a power cut has torn it; return whether it was
    torn. No process sees half a commit otherwise, for each is linked when it is written; and
    none that RQ said to be done is torn, since it was synced before."""
    if _torn(log) is None:
        return False
    held = locks.lock_waiting(log / _LOCK)
    try:
        # Another process may have taken it away since, and a whole one may have its name.
        if torn := _torn(log):
            torn.unlink(missing_ok=True)
    finally:
        os.close(held)
    return True


def _torn(log: Path) -> Path | None:
    """Return the last commit of a log if it is torn."""
    last = max(log.glob("*.json"), default=None)
    if last is None:
        return None
    try:
        lines = last.read_bytes().splitlines()
        if lines and all(isinstance(json.loads(line), dict) for line in lines):
            return None
    except FileNotFoundError:  # it was taken away just now
        return None
    except ValueError:
        pass  # torn, or zeros
    return last


def is_of(commit: Path, app_id: str) -> bool:
    """Whether a commit is that of a decision."""
    actions = map(json.loads, commit.read_bytes().splitlines())
    ids = [action.get("txn", {}).get("appId") for action in actions]
    return app_id in ids


def sync(path: Path, since: float) -> None:
    """Let a commit outlast a power cut: all of the log that is as new as the decision. What
    others are writing has a name for moments, and is theirs to sync under its last one."""
    log = path / LOG
    with os.scandir(log) as entries:
        every = list(entries)
    for entry in every:
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file() and entry.stat().st_mtime >= since - SLACK:
                files.sync(Path(entry))
    files.sync(log)
    files.sync(path)
