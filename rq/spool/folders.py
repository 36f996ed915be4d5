"""Reading message folders, with or without their owner; nothing here writes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from rq import names
from rq.errors import BadMessage, NoSuchMessage
from rq.layout import ATTACH, MSG, STATUS, QueueDir, folder
from rq.message import Message, from_disk
from rq.spool.entry import COUNTED, Counts
from rq.states import HASHED, State


def find(queue: QueueDir, msg_id: str) -> State | None:
    """Return the state that the folder of a message is in; None if there is none."""
    for state in COUNTED:
        if os.path.isdir(queue.message(state, msg_id)):
            return state
    return None


def find_final(dir_fd: int, msg_id: str) -> State | None:
    """As `find`, in the final states only, relative to a queue directory."""
    for state in (State.DONE, State.ERR, State.RELAYED, State.DISMISSED):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.stat(folder(state, msg_id), dir_fd=dir_fd, follow_symlinks=False)
            return state
    return None


def list_state(queue: QueueDir, state: State, limit: int | None = None) -> list[str]:
    """Return ids of the messages in a state, newest first, `limit` of them."""
    if state in HASHED:
        return _take(_hashed(queue, state), limit)
    dotted = state is State.DISMISSED
    found = [
        name.removeprefix(".")
        for name in _names(queue.path / ("err" if dotted else state))
        if name.startswith(".") == dotted and names.is_msg_id(name.removeprefix("."))
    ]
    found.sort(reverse=True)
    return found[:limit]


def newest_first(queue: QueueDir, state: State, after: str = "") -> Iterator[str]:
    """Give the ids of the messages in a state, without listing them all first.

    `after`: only those older than that id.
    """
    if state in HASHED:
        return _hashed(queue, state, after)
    return (one for one in list_state(queue, state) if not after or one < after)


def _take(ids: Iterator[str], limit: int | None) -> list[str]:
    found: list[str] = []
    for one in ids:
        if limit is not None and len(found) >= limit:
            break
        found.append(one)
    return found


def _hashed(queue: QueueDir, state: State, after: str = "") -> Iterator[str]:
    top = queue.path / state
    at = after or "9" * 13
    for date in _down(top, 8, at[:8]):
        for hour in _down(top / date, 2, at[9:11] if date == at[:8] else "99"):
            whole = f"{date}.{hour}" < at[:11]
            for minute in _down(top / date / hour, 2, "99" if whole else at[11:13]):
                ids = filter(names.is_msg_id, _names(top / date / hour / minute))
                older = (one for one in ids if not after or one < after)
                yield from sorted(older, reverse=True)


def _down(path: os.PathLike[str], length: int, last: str) -> list[str]:
    """Return the directories that are called by a number up to `last`, downwards."""
    return sorted((one for one in _digits(path, length) if one <= last), reverse=True)


def _digits(path: os.PathLike[str], length: int) -> list[str]:
    return [name for name in _names(path) if len(name) == length and name.isdigit()]


def _names(path: os.PathLike[str]) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def count(queue: QueueDir) -> Counts:
    """Count all messages by listing: for stopped queues and for checks."""
    counts = Counts()
    for state in COUNTED:
        if state in HASHED:
            counts.by_state[state] = sum(1 for _ in _hashed(queue, state))
        else:
            counts.by_state[state] = len(list_state(queue, state))
    return counts


def read_message(
    queue: QueueDir, state: State, msg_id: str, now: float = 0.0
) -> Message:
    """Return a message from its folder; NoSuchMessage, or BadMessage when torn."""
    try:
        data = read_file(str(queue.message(state, msg_id) / MSG))
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchMessage(f"no message {msg_id} in {queue.name}") from None
    except OSError as error:
        raise BadMessage(f"msg couldn't be read: {error.strerror}") from None
    return from_disk(data, msg_id, now)


def read_status(queue: QueueDir, state: State, msg_id: str) -> dict[str, Any]:
    """Return what is known of a message's last attempt; {} when nothing is."""
    return read_status_at(str(queue.message(state, msg_id)))


def read_status_at(path: str, dir_fd: int | None = None) -> dict[str, Any]:
    """As `read_status`, by the path of the folder."""
    try:
        found = orjson.loads(read_file(f"{path}/{STATUS}", dir_fd))
    except (OSError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def read_file(path: str, dir_fd: int | None = None) -> bytes:
    """Return the content of a small file; never waits for a fifo in its place."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, dir_fd=dir_fd)
    try:
        size = os.fstat(fd).st_size
        data = os.read(fd, size + 1)
        while len(data) < size and (more := os.read(fd, size)):
            data += more
        return data
    finally:
        os.close(fd)


def open_regular(path: Path) -> int:
    """Return a descriptor of a regular file; OSError for anything that a script has put
    in its place, and never a wait for the writer of a fifo."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def attachments(queue: QueueDir, state: State, msg_id: str) -> list[str]:
    """Return the names in `attach/`, without unfinished uploads."""
    listed = _names(queue.message(state, msg_id) / ATTACH)
    return sorted(name for name in listed if not name.startswith("."))
