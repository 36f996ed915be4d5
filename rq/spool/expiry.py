"""The search for messages that have ended and are to be removed: by age, number or bytes.

Reads only, in any thread; `Spool.expire` removes, and looks again before it does.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rq import names
from rq.layout import STATUS, QueueDir
from rq.spool import folders
from rq.spool.disk_usage import DiskUsage
from rq.words.states import HASHED, State

IN_USE = 3600.0  # seconds; a younger directory is left alone, empty or not

_Set = dict[str, None]  # in the order of its making


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is kept of a state; None: as much as there is."""

    before: float | None = None  # epoch seconds: what ended earlier goes
    keep: int | None = None  # of the newest so many stay
    size: int | None = None  # of the newest so many bytes stay


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What only the owner knows of the messages of a state."""

    total: int  # how many there are, those on their way in too
    held: Collection[str] = ()  # they may not go yet
    going: Collection[str] = ()  # on their way out: not in `total`, perhaps still there


@dataclass(slots=True)
class Old:
    """What has outlived its limits, oldest first."""

    ids: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)  # directories, the inner ones first
    more: bool = False  # there was no room for all of them


def ended(queue: QueueDir, state: State, msg_id: str) -> float:
    """Return when a message ended or was acknowledged, in epoch seconds.

    FileNotFoundError when its folder is gone.
    """
    folder = queue.message(state, msg_id)
    if state is State.DISMISSED:
        return folder.stat().st_ctime  # of its renaming
    with contextlib.suppress(FileNotFoundError):
        return (folder / STATUS).stat().st_mtime
    return folder.stat().st_mtime


class Search:
    """One walk over the messages of a state, from the oldest on, a batch at a time.

    For threads, one after the other. What a batch has passed no later one looks at.
    """

    def __init__(self, weights: DiskUsage, state: State) -> None:
        self._weights = weights
        self._queue = weights.queue
        self.state = state
        self._empty: _Set = {}
        self._ids = _oldest_first(self._queue, state, self._empty)
        self._held: str | None = None  # there was no room for it
        self._stayed = 0  # passed, and left where they are
        self._size: int | None = None  # for which `_heavy` was found
        self._heavy: str | None = None  # the newest that does not fit in `_size`

    def batch(self, limits: Limits, owned: Owned, most: int = 1000) -> Old:
        """Return up to `most` further messages that have outlived `limits`."""
        old = Old()
        self._weigh(limits.size)
        keep = owned.total if limits.keep is None else limits.keep
        excess = owned.total - keep - self._stayed
        while (msg_id := self._next()) is not None:
            surplus = excess > 0 or (self._heavy is not None and msg_id <= self._heavy)
            if not surplus and not _may_be_old(msg_id, limits):
                break  # all that follow are younger
            if msg_id in owned.going:
                continue
            goes = surplus or _is_old(self._queue, self.state, msg_id, limits)
            if not goes or msg_id in owned.held:
                self._stayed += 1
            elif len(old.ids) < most:
                old.ids.append(msg_id)
            else:
                self._held, old.more = msg_id, True
                break
            excess -= 1
        old.empty = list(self._empty)
        self._empty.clear()
        return old

    def _next(self) -> str | None:
        held, self._held = self._held, None
        return held or next(self._ids, None)

    def _weigh(self, size: int | None) -> None:
        """Find what is too heavy, once for all batches of the same limit."""
        if size != self._size:
            self._size = size
            self._heavy = (
                None if size is None else self._weights.too_heavy(self.state, size)
            )


def _may_be_old(msg_id: str, limits: Limits) -> bool:
    """Whether a message began early enough to have ended before the limit."""
    return limits.before is not None and names.created(msg_id) < limits.before


def _is_old(queue: QueueDir, state: State, msg_id: str, limits: Limits) -> bool:
    with contextlib.suppress(OSError):
        return limits.before is not None and ended(queue, state, msg_id) < limits.before
    return False


def _oldest_first(queue: QueueDir, state: State, empty: _Set) -> Iterator[str]:
    """Give the messages of a state; directories passed that hold nothing to `empty`."""
    if state not in HASHED:
        yield from reversed(folders.list_state(queue, state))
        return
    for date in _inner(queue, f"{state}", 8):
        for hour in _inner(queue, date, 2):
            for minute in _inner(queue, hour, 2):
                yield from _messages(queue, minute, empty)
            _note_empty(queue, hour, empty)
        _note_empty(queue, date, empty)


def _inner(queue: QueueDir, path: str, digits: int) -> list[str]:
    listed = _listed(queue, path)
    return [f"{path}/{n}" for n in listed if len(n) == digits and n.isdecimal()]


def _messages(queue: QueueDir, minute: str, empty: _Set) -> list[str]:
    ids = [name for name in _listed(queue, minute) if names.is_msg_id(name)]
    if not ids:
        _note_empty(queue, minute, empty)
    return ids


def _note_empty(queue: QueueDir, path: str, empty: _Set) -> None:
    hour_ago = datetime.fromtimestamp(time.time() - IN_USE, UTC)
    when = "".join(path.split("/")[1:])
    young = when >= f"{hour_ago:%Y%m%d%H%M}"[: len(when)]
    if not young and all(f"{path}/{name}" in empty for name in _listed(queue, path)):
        empty[path] = None


def _listed(queue: QueueDir, path: str) -> list[str]:
    try:
        return sorted(os.listdir(queue.path / path))
    except (FileNotFoundError, NotADirectoryError):
        return []
