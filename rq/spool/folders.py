"""Reading message folders, with or without their owner; nothing here writes."""

from __future__ import annotations

import contextlib
import heapq
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from rq import names
from rq.errors import BadMessage, NoSuchMessage, Torn, Unread, is_busy
from rq.files import beneath
from rq.files.durable import content
from rq.layout import ATTACH, JOB, MSG, STATUS, QueueDir, folder
from rq.message.message import Message, from_disk
from rq.replies import Result
from rq.spool import after_list, handed_over, status
from rq.spool.entry import Counts
from rq.words.states import COUNTED, HASHED, State

# Bytes of `msg`, `status` and the like: a message is accepted up to 1 MiB, and grows with
# its attempts and riders.
FILE_LIMIT = 16 * 1024 * 1024
LOG_HEAD = re.compile(rb"\n\d+ - \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+ - RQ START - ")

# Calls something in a thread, as to list much; what it returns or raises comes to the caller
# that awaits it.
Aside = Callable[..., Awaitable[Any]]


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


def list_state(
    queue: QueueDir, state: State, limit: int | None = None, after: str = ""
) -> list[str]:
    """Return ids of the messages in a state, newest first, `limit` of them; `after`:
    only those older than that id."""
    if state in HASHED:
        return _take(_hashed(queue, state, after), limit)
    dotted = state is State.DISMISSED
    ids = (
        name.removeprefix(".")
        for name in _names(queue.path / ("err" if dotted else state))
        if name.startswith(".") == dotted and names.is_msg_id(name.removeprefix("."))
    )
    older = (msg_id for msg_id in ids if not after or msg_id < after)
    if limit is None:
        return sorted(older, reverse=True)
    # Bit by bit: to sort a million in one go would stop all other threads.
    return heapq.nlargest(limit, older)


def newest_first(queue: QueueDir, state: State, after: str = "") -> Iterator[str]:
    """Give the ids of the messages in a state, without listing them all first.

    `after`: only those older than that id.
    """
    if state in HASHED:
        return _hashed(queue, state, after)
    return iter(list_state(queue, state, after=after))


def _take(ids: Iterator[str], limit: int | None) -> list[str]:
    taken: list[str] = []
    for msg_id in ids:
        if limit is not None and len(taken) >= limit:
            break
        taken.append(msg_id)
    return taken


def minutes(queue: QueueDir, state: State, after: str = "") -> Iterator[str]:
    """Give the directories of done or relayed that hold messages, newest first, by their
    paths below the queue; `after`: down from the one of that id."""
    top = queue.path / state
    at = after or "9" * 13
    for date in _down(top, 8, at[:8]):
        for hour in _down(top / date, 2, at[9:11] if date == at[:8] else "99"):
            whole = f"{date}.{hour}" < at[:11]
            for minute in _down(top / date / hour, 2, "99" if whole else at[11:13]):
                yield f"{state}/{date}/{hour}/{minute}"


def in_minute(queue: QueueDir, path: str) -> list[str]:
    """Return the ids of the messages in such a directory, newest first."""
    return sorted(filter(names.is_msg_id, _names(queue.path / path)), reverse=True)


def _hashed(queue: QueueDir, state: State, after: str = "") -> Iterator[str]:
    for path in minutes(queue, state, after):
        for msg_id in in_minute(queue, path):
            if not after or msg_id < after:
                yield msg_id


def _down(path: os.PathLike[str], length: int, last: str) -> list[str]:
    """Return the directories that are called by a number up to `last`, downwards."""
    return sorted(
        (name for name in _digits(path, length) if name <= last), reverse=True
    )


def _digits(path: os.PathLike[str], length: int) -> list[str]:
    return [name for name in _names(path) if len(name) == length and name.isdecimal()]


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
    path = folder(state, msg_id)
    try:
        with beneath.top(queue.path) as top:
            data = read_file(f"{path}/{MSG}", top)
            return after_list.whole(from_disk(data, msg_id, now), path, top)
    except Torn:
        if not os.path.lexists(queue.path / path):  # it went on between the two files
            raise NoSuchMessage(f"no message {msg_id} in {queue.name}") from None
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise NoSuchMessage(f"no message {msg_id} in {queue.name}") from None
    except OSError as error:
        raise unread(error) from None


def unread(error: OSError) -> BadMessage:
    """Return the failure to tell a reader of a message whose file cannot be read."""
    reason = str(error.strerror or error)
    text = f"msg couldn't be read: {reason}"
    return Unread(text) if is_busy(error) else Torn(text, reason)


def read_status(queue: QueueDir, state: State, msg_id: str) -> Result:
    """Return what is known of a message's last attempt; {} when nothing is."""
    try:
        with beneath.top(queue.path) as top:
            return read_status_at(folder(state, msg_id), top)
    except OSError:
        return {}


def read_status_at(path: str, dir_fd: int) -> Result:
    """As `read_status`, by the path of the folder in its queue."""
    try:
        return status.believed(read_json(f"{path}/{STATUS}", dir_fd) or {})
    except OSError:
        return {}


def read_json(path: str, dir_fd: int) -> dict[str, Any] | None:
    """Return the JSON object in a file that a script's user could touch; None if there
    is none. OSError: RQ lacks what it takes to look."""
    try:
        value = orjson.loads(read_file(path, dir_fd))
    except OSError as error:
        if is_busy(error):
            raise
        return None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def read_file(path: str, dir_fd: int) -> bytes:
    """Return the content of a small file below a queue's directory."""
    return beneath.read(path, dir_fd, FILE_LIMIT)


def read_stamped(path: str, dir_fd: int) -> tuple[bytes, beneath.Stamp]:
    """As `read_file`; also return the stamp that the file had before it was read."""
    return beneath.read_stamped(path, dir_fd, FILE_LIMIT)


@dataclass(frozen=True, slots=True)
class File:
    """A file of a message, by its name: what has that name is seen when it is opened."""

    queue: QueueDir
    path: str  # below the queue

    def open(self) -> int:
        """Return a descriptor; NotPlain for all that a script may put in its place."""
        with beneath.top(self.queue.path) as top:
            return self.open_at(top)

    def open_at(self, dir_fd: int) -> int:
        """As `open`, below the directory of its queue that is held open."""
        shared = _is_log if f"/{JOB}/" in self.path else content.is_ours
        fd = beneath.open_plain(self.path, dir_fd, shared=shared)
        try:
            handed_over.check_owner(fd, self.path, dir_fd)
        except BaseException:
            os.close(fd)
            raise
        return fd


def file_of(queue: QueueDir, state: State, msg_id: str, inner: str) -> File:
    """Return a file of a message that is in `state`."""
    return File(queue, f"{folder(state, msg_id)}/{inner}")


def _is_log(fd: int, info: os.stat_result) -> bool:
    """Whether a file with more names is the log of a batch, which all of its messages
    have: such a one begins as RQ begins it."""
    return LOG_HEAD.match(os.pread(fd, 256, 0)) is not None


def attachments(queue: QueueDir, state: State, msg_id: str) -> list[str]:
    """Return the names in `attach/`, without unfinished uploads."""
    listed = names_in(queue, f"{folder(state, msg_id)}/{ATTACH}")
    return sorted(name for name in listed if not name.startswith("."))


def names_in(queue: QueueDir, path: str) -> list[str]:
    """Return what lies in a directory of a message; nothing where there is none."""
    missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with missing, beneath.top(queue.path) as top:
        return beneath.names(path, top)
    return []
