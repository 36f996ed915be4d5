"""Working directories of batches: `batch/ID/` exists as long as the batch runs.

Its log stays after that: each of its messages has it in its own folder by a hard link.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import orjson

from rq.errors import is_busy
from rq.files import beneath, durable
from rq.layout import BATCH, BATCH_FILE, JOB, STDIO_LOG, QueueDir, folder
from rq.proc.processes import Holder
from rq.spool import handed_over
from rq.spool.folders import FILE_LIMIT
from rq.spool.handed_over import Ids, is_free
from rq.spool.store import Spool
from rq.words.states import State

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def begin(spool: Spool, batch_id: str) -> tuple[str, int]:
    """Make the directory of a batch; return its path in the queue, and a descriptor."""
    path = f"{BATCH}/{batch_id}"
    with contextlib.suppress(FileExistsError):
        durable.make_dir(path, spool.dir_fd)
    handed_over.take_back(path, spool.dir_fd)
    return path, beneath.open_place(path, spool.dir_fd)


def describe(spool: Spool, batch_id: str, body: bytes, ids: Ids | None = None) -> None:
    """Write what the script reads of its messages. If it runs as another user and group,
    the directory is theirs from then on, and no name in it can be trusted."""
    path = f"{BATCH}/{batch_id}"
    durable.replace(f"{path}/{BATCH_FILE}", body, spool.dir_fd)
    if ids is not None:
        handed_over.hand_batch(path, BATCH_FILE, ids, spool.dir_fd)


def share_log(
    spool: Spool, batch_id: str, msg_id: str, attempt: int, ids: Ids | None = None
) -> None:
    """Give the log of a batch a name in the folder of a message that runs in it.

    An earlier log there keeps its text, under the number of the attempt before this.
    """
    spool.settle(msg_id)
    source = beneath.open_place(f"{BATCH}/{batch_id}", spool.dir_fd)
    try:
        job = spool.run_folders.open_work_dir(msg_id, ids)
        try:
            _share(source, job, attempt)
        except OSError as error:
            error.filename = f"{folder(State.RUN, msg_id)}/{JOB}/{STDIO_LOG}"
            raise
        finally:
            os.close(job)
    finally:
        os.close(source)


def _share(source: int, job: int, attempt: int) -> None:
    try:
        _link(source, job)
    except FileExistsError:
        durable.move(STDIO_LOG, f"stdio.{attempt - 1}.log", job)
        _link(source, job)


def _link(source: int, job: int) -> None:
    """Give the log in one directory a name in another, where the file system can."""
    try:
        durable.link(STDIO_LOG, STDIO_LOG, source, job)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise


def set_aside(job: int, attempt: int = 2) -> None:
    """Give the log in the open directory of a message the name of the last attempt that
    it tells of, before this one; if that is taken, the next free one."""
    first = max(1, attempt - 1)
    number = next(n for n in itertools.count(first) if is_free(f"stdio.{n}.log", job))
    durable.move(STDIO_LOG, f"stdio.{number}.log", job)


def end(spool: Spool, batch_id: str) -> None:
    """Remove the directory of a batch that has ended."""
    spool.gone.doom(f"{BATCH}/{batch_id}", f"{BATCH}.{batch_id}")


def clear(spool: Spool, but: Collection[str]) -> None:
    """Remove what batches of earlier owners have left, `but` those that still run."""
    for name in os.listdir(spool.queue.path / BATCH):
        if name not in but:
            end(spool, name)


def members(queue: QueueDir, left: Iterable[Holder]) -> list[Holder]:
    """Return processes that did not end, once for each message of their batch."""
    each = []
    for process in left:
        each.append(process)
        for msg_id in _ids(queue, process.msg_id):
            if msg_id != process.msg_id:
                each.append(
                    replace(process, msg_id=msg_id, pidfd=os.dup(process.pidfd))
                )
    return each


def with_theirs(
    left: Iterable[Holder], prefix: str, running: Mapping[str, int | None]
) -> list[Holder]:
    """Return processes that did not end; those of long-lived workers once for each
    message that they may work on. Their environment names no message, only their slot.

    `running`: all messages in run, with the slot in their claim where that is known.
    """
    each = []
    for process in left:
        each.append(process)
        for msg_id in (
            [] if process.msg_id else _on_slot(slot_of(process.lease, prefix), running)
        ):
            each.append(replace(process, msg_id=msg_id, pidfd=os.dup(process.pidfd)))
    return each


def slot_of(lease: str, prefix: str) -> int | None:
    """Return the number of a slot in a lease.

    >>> slot_of("q/1234/7/1600000000.3", "q/1234/"), slot_of("", "q/1234/")
    (7, None)
    >>> slot_of("q/1234/²/1600000000.3", "q/1234/")  # a process says what it likes
    """
    number = lease.removeprefix(prefix).partition("/")[0]
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    return int(number) if is_number else None


def _on_slot(slot: int | None, running: Mapping[str, int | None]) -> list[str]:
    return [
        msg_id
        for msg_id, claimed in running.items()
        if None in (claimed, slot) or claimed == slot
    ]


def _ids(queue: QueueDir, batch_id: str) -> list[str]:
    if not batch_id:
        return []
    try:
        with beneath.top(queue.path) as top:
            body = _own_file(f"{BATCH}/{batch_id}/{BATCH_FILE}", top)
        return [str(message["msg_id"]) for message in orjson.loads(body)["messages"]]
    except OSError as error:
        if is_busy(error):
            raise
        return []
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []


def _own_file(path: str, dir_fd: int) -> bytes:
    """Return what a file holds; nothing of one that is not ours: a script that runs as
    another user may put what it likes into the directory of its batch."""
    fd = beneath.open_any(path, os.O_RDONLY, dir_fd)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return b""
        return beneath.content(fd, path, FILE_LIMIT)
    finally:
        os.close(fd)
