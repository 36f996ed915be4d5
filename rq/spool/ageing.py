"""Which messages that have ended are to be removed: by age, number or bytes.

Reads only, in any thread; `Spool.expire` removes, and looks again before it does.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from rq import beneath, names
from rq.layout import STATUS, QueueDir, folder
from rq.spool import folders
from rq.states import HASHED, State

MOST_LOOKED = 100_000  # files of one message that are measured
DEEPEST = 64
SMALL = 1024 * 1024  # bytes
IN_USE = 3600.0  # seconds; a younger directory is left alone, empty or not

_Set = dict[str, None]  # in the order of its making


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is kept of a state; None: as much as there is."""

    before: float | None = None  # epoch seconds: what ended earlier goes
    keep: int | None = None  # of the newest so many stay
    size: int | None = None  # of the newest so many bytes stay


@dataclass(slots=True)
class Old:
    """What has outlived its limits, oldest first."""

    ids: list[str] = field(default_factory=list)
    empty: _Set = field(default_factory=dict)  # directories, the inner ones first
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


def select(
    queue: QueueDir,
    state: State,
    limits: Limits,
    total: int,
    but: Collection[str] = (),
    most: int = 1000,
) -> Old:
    """Return up to `most` messages of `state` that have outlived `limits`.

    `total` is how many there are in all; `but` are never among them.
    """
    found = Old()
    excess = 0 if limits.keep is None else total - limits.keep
    heavy = _too_heavy(queue, state, limits.size)
    for msg_id in _oldest_first(queue, state, found.empty):
        old = limits.before is not None and names.created(msg_id) < limits.before
        surplus = excess > 0 or (heavy is not None and msg_id <= heavy)
        if not surplus and not old:
            break  # all that follow are younger
        excess -= 1
        if msg_id in but or not (surplus or _is_old(queue, state, msg_id, limits)):
            continue
        if len(found.ids) >= most:
            found.more = True
            break
        found.ids.append(msg_id)
    return found


def _is_old(queue: QueueDir, state: State, msg_id: str, limits: Limits) -> bool:
    with contextlib.suppress(OSError):
        return limits.before is not None and ended(queue, state, msg_id) < limits.before
    return False


def _too_heavy(queue: QueueDir, state: State, size: int | None) -> str | None:
    """Return the newest message that does not fit in `size` bytes with those after it."""
    if size is None:
        return None
    for msg_id in folders.newest_first(queue, state):
        size -= weight(queue, folder(state, msg_id))
        if size < 0:
            return msg_id
    return None


def weight(queue: QueueDir, path: str) -> int:
    """Return the bytes of all files in a folder of a queue; 0 when it is gone.

    No link is followed, and of what a script has made deeper or more numerous than any
    use is, the rest is not looked at.
    """
    total, looked = 0, 0
    below = [path]
    with beneath.top(queue.path) as top:
        while below and looked < MOST_LOOKED:
            at = below.pop()
            for name, info in _looked_at(at, top):
                looked += 1
                if stat.S_ISREG(info.st_mode):
                    total += _bytes(info)
                elif stat.S_ISDIR(info.st_mode) and at.count("/") < DEEPEST:
                    below.append(f"{at}/{name}")
    return total


def _bytes(info: os.stat_result) -> int:
    """Return the size of a file; of a large one what the disk holds of it: holes must
    not make other messages go."""
    if info.st_size <= SMALL:
        return info.st_size
    return min(info.st_size, info.st_blocks * 512)


def _looked_at(path: str, top: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        fd = beneath.open_dir(path, top)
    except OSError:
        return
    try:
        with os.scandir(fd) as entries:
            for entry in islice(entries, MOST_LOOKED):
                with contextlib.suppress(OSError):
                    yield entry.name, entry.stat(follow_symlinks=False)
    finally:
        os.close(fd)


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
    found = [one for one in _listed(queue, minute) if names.is_msg_id(one)]
    if not found:
        _note_empty(queue, minute, empty)
    return found


def _note_empty(queue: QueueDir, path: str, empty: _Set) -> None:
    hour_ago = datetime.fromtimestamp(time.time() - IN_USE, UTC)
    when = "".join(path.split("/")[1:])
    young = when >= f"{hour_ago:%Y%m%d%H%M}"[: len(when)]
    if not young and all(f"{path}/{one}" in empty for one in _listed(queue, path)):
        empty[path] = None


def _listed(queue: QueueDir, path: str) -> list[str]:
    try:
        return sorted(os.listdir(queue.path / path))
    except (FileNotFoundError, NotADirectoryError):
        return []
