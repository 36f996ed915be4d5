"""Where Spark puts what memory cannot hold: a directory for each driver.

A driver that is killed leaves its behind. The next that starts removes those whose
drivers have ended: each holds a lock as long as it lives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from pathlib import Path

from rq.config import files
from rq.errors import BadConfig
from rq.proc import locks, processes

_LOCK = "lock"
_NAME = re.compile(r"\d+-\d+", re.ASCII)  # pid, and when it was started


def demand(place: Path) -> None:
    """Raise BadConfig unless this process may write to `place`, where jobs keep what they
    need."""
    try:
        files.make_dir(place)
    except OSError as error:
        why = error.strerror
    else:
        why = "" if _is_open(place) else os.strerror(errno.EACCES)
    if why:
        raise BadConfig(
            f"a job needs to write to {place}: {why}; it can only run as the user of RQ: "
            'take "user" out of the config of its queue'
        )


def _is_open(place: Path) -> bool:
    return os.access(place, os.W_OK | os.X_OK, effective_ids=True)


def enter(place: Path) -> Path:
    """Return the directory of this process under `place`, made if it is not there;
    remove those of processes that have ended."""
    own = _own(place)
    files.make_dir(place)
    # One at a time, lest one that has its directory and not yet its lock seem dead.
    turn = locks.lock_waiting(place / _LOCK)
    try:
        for path in _left(place):
            if path != own:
                with contextlib.suppress(OSError):  # another user's, say
                    files.remove_dir(path)
        files.make_dir(own)
        # Open until this process ends, and in none that it starts. It holds the lock
        # already if this is not its first session.
        locks.lock(own / _LOCK)
    finally:
        os.close(turn)
    return own


def leave(place: Path) -> None:
    """Remove the directory of this process, whose Java has ended."""
    files.remove_dir(_own(place))


def _own(place: Path) -> Path:
    pid = os.getpid()
    return place / f"{pid}-{processes.start_time(pid) or 0}"


def _left(place: Path) -> list[Path]:
    """Return the directories of drivers that have ended, and nothing else."""
    return [
        path
        for path in place.iterdir()
        if _NAME.fullmatch(path.name) and not locks.is_locked(path / _LOCK)
    ]
