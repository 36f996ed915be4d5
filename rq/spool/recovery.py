"""Opening a queue: lock, read, fold once, act once.

Afterwards memory is complete and every event of recovery is durable; folders that are
still to be made go into the ordinary lag. A recovery that is cut short by a crash is
repeated by the next one, with the same end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

from rq import beneath, durable, names
from rq.causes import Cause
from rq.errors import BadConfig, BadInput, NotPlain, Refused, is_busy
from rq.journal import history, mark, sealing
from rq.journal.dry_run import DryRun
from rq.journal.segment_file import read_segment
from rq.journal.segments import Author
from rq.journal.writer import Journal
from rq.layout import MSG, QUEUE_DIRS, QueueDir, folder
from rq.logs import fields
from rq.proc import lease_holders, locks, processes
from rq.spool import (
    adoption,
    ancestor_files,
    batch_dirs,
    checkpoint,
    decisions,
    folders,
    outbox,
    restored,
    transactions,
)
from rq.spool.entry import COUNTED, Counts
from rq.spool.recovery_apply import Opened, act
from rq.spool.recovery_scan import Found, look, was_clean
from rq.spool.store import Owes, Spool, owes_nothing
from rq.states import HASHED, State

QUE_BYTES = 8 * 1024 * 1024  # of an empty directory que/
ADOPTED_BYTES = 256 * 1024 * 1024  # of files that are read at the first start

_log = logging.getLogger(__name__)


def stopped_cleanly(queue: QueueDir) -> bool:
    """Return whether the folders alone tell everything: the queue was never started,
    or its last end was a clean stop."""
    point = checkpoint.read(queue)
    active = history.active_segments(queue.journal_dir)
    if point is None:
        return not active and not history.journals(queue.journal_dir)
    contents = [read_segment(segment) for segment in active]
    return point.clean and not any(
        content.last_seq > point.seq
        for content in contents
        if content is not None and content.events
    )


def open_spool(
    queue: QueueDir,
    *,
    threads: Executor | None = None,
    clock: Callable[[], float] = time.time,
    grace: float = 10.0,
    owes: Owes = owes_nothing,
) -> Opened:
    """Take the lock of a queue and recover it; `owes` tells what messages owe others
    whose attempts were lost once too often.

    Refused: another process owns it. Damaged: its journal cannot be believed.
    """
    if missing := [one for one in QUEUE_DIRS if not (queue.path / one).is_dir()]:
        for name in missing:
            durable.make_dirs(str(queue.path / name))
        durable.sync_path(queue.path)  # what is promised in there must be found
    lock = locks.lock(queue.lock)
    if lock is None:
        raise Refused(f"queue {queue.name} is owned by another process")
    dir_fd = os.open(queue.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _open(queue, lock, dir_fd, threads, clock, grace, owes)
    except BaseException:
        os.close(dir_fd)
        os.close(lock)
        raise


def _open(
    queue: QueueDir,
    lock: int,
    dir_fd: int,
    threads: Executor | None,
    clock: Callable[[], float],
    grace: float,
    owes: Owes,
) -> Opened:
    _check_device(queue)
    found = look(queue, clock())
    if not found.fresh and (why := restored.why_waiting(queue)) is not None:
        return _open_still(queue, lock, dir_fd, found, clock, why)
    boot = processes.boot_id()
    left = lease_holders.prefix_of(queue, found.journal)
    same_boot = found.boot == boot
    ghosts = lease_holders.end_left(queue, left, grace) if same_boot else []
    ghosts += lease_holders.of_ancestor(queue)
    immortal = {one.msg_id for one in ghosts}
    if found.fresh:
        _adopt_modes(queue)
        _adopt_files(queue)
        adoption.note(queue, clock())
    place = queue.journal_dir
    sealing.seal_last(place, dir_fd, found.journal)
    journal_id = mark.goes_on_as(place, found.journal)
    mark.write(place, dir_fd, journal_id, found.journal)
    author = Author(journal_id, found.start, boot)
    journal = Journal(place, dir_fd, author, found.last, threads)
    durable.crash_point("recovery:before-retire")
    sealing.seal_left(place, dir_fd, found.journal, journal.segment)
    spool = Spool(queue, dir_fd, journal, {}, _counts(found), {}, clock, threads)
    spool.owes = owes
    spool.adopted = adoption.at(queue)
    spool.seen = found.seen
    _remember(spool, found)
    trusted = same_boot and not found.folded.suspect
    prefix = lease_holders.prefix_of(queue, journal_id)
    opened = Opened(spool, lock, prefix, was_clean(found), trusted)
    opened.ghosts = batch_dirs.members(queue, ghosts)
    act(opened, found, Cause.CRASH if same_boot else Cause.HOST)
    decisions.finish_all(spool, found.folded)
    spool.commit()
    transactions.clear_manifests(queue, spool.txns, found.folded.listed)
    batch_dirs.clear(spool, immortal)
    spool.gone.take_over()
    if opened.clean:
        _renew_que(spool)
    return opened


def _open_still(
    queue: QueueDir,
    lock: int,
    dir_fd: int,
    found: Found,
    clock: Callable[[], float],
    why: str,
) -> Opened:
    """Show what recovery would do in a queue that waits for a person's word; nothing on
    disk changes."""
    _log.error("%s: %s", queue.name, why)
    journal = DryRun(found.journal, found.start, found.last)
    spool = Spool(queue, dir_fd, journal, {}, _counts(found), {}, clock)
    spool.adopted, spool.seen = adoption.at(queue), found.seen
    _remember(spool, found)
    prefix = lease_holders.prefix_of(queue, found.journal)
    opened = Opened(spool, lock, prefix, was_clean(found), False, restored=why)
    act(opened, found, Cause.CRASH)
    return opened


def _check_device(queue: QueueDir) -> None:
    devices = {os.stat(queue.path / name).st_dev for name in QUEUE_DIRS}
    if len(devices | {os.stat(queue.path).st_dev}) > 1:
        raise BadConfig(
            f"{queue.path}: its directories are not on one file system; a rename "
            "between them could not be atomic"
        )


def _adopt_modes(queue: QueueDir) -> None:
    """Keep others out of a queue that was not made by this RQ."""
    durable.allow(str(queue.path), durable.DIR_MODE)
    with beneath.top(queue.path) as top:
        for name in QUEUE_DIRS:
            durable.allow(name, durable.DIR_MODE, top)
        for state in COUNTED:
            for msg_id in folders.list_state(queue, state):
                path = folder(state, msg_id)
                # What is none of ours is refused when it is read.
                with contextlib.suppress(FileNotFoundError, NotPlain):
                    durable.allow(path, durable.DIR_MODE, top)
                    durable.allow(f"{path}/{MSG}", durable.FILE_MODE, top)


def _adopt_files(queue: QueueDir) -> None:
    """Name in `msg` what the ancestor attached, as far as that is soon done: the rest is
    named when it is wanted, or refused then in the same words."""
    left = ADOPTED_BYTES
    with beneath.top(queue.path) as top:
        for state, msg_id in _of_ancestor(queue):
            try:
                left -= ancestor_files.adopt(top, folder(state, msg_id), msg_id, left)
            except (BadInput, OSError) as error:
                if isinstance(error, OSError) and is_busy(error):
                    raise
                _log.warning(
                    "what the Ruby RQ attached to a message cannot be taken; it will "
                    "not be cloned or relayed without it: %s",
                    fields(queue=queue.name, msg_id=msg_id, reason=error),
                )


def _of_ancestor(queue: QueueDir) -> Iterator[tuple[State, str]]:
    """Give its messages, those first that have still to be done; not those in run: a
    script of the ancestor may be at work in there."""
    for state in COUNTED:
        if state is not State.RUN:
            for msg_id in filter(
                names.is_ancestors, folders.newest_first(queue, state)
            ):
                yield state, msg_id


def _renew_que(spool: Spool) -> None:
    """Replace an empty que/ that once held very many: listing it stays slow."""
    if spool.counts.of(State.QUE) or spool.counts.of(State.RUN) or spool.unsettled:
        return
    size = os.stat("que", dir_fd=spool.dir_fd).st_size
    if size > QUE_BYTES and durable.remove_dir("que", spool.dir_fd):
        durable.make_dir("que", spool.dir_fd)


# ---- the journal's files


def _counts(found: Found) -> Counts:
    """Return the counts of final states; the live ones are added as they are found."""
    counts = Counts()
    point = found.checkpoint
    for state in HASHED:
        if point is not None:
            counts.by_state[state] = point.counts.of(state)
            counts.by_state[state] += found.folded.deltas[state]
    return counts


def _remember(spool: Spool, found: Found) -> None:
    spool.keys, spool.txns = found.keys, found.txns
    spool.compares = found.index.compares if found.index else ()
    owed = dict(found.checkpoint.owed) if found.checkpoint else {}
    for seq, number, out, since in found.folded.owed:
        of = seq, number
        owed[of] = outbox.owed(out, out["msg"], since, out["journal"], of)
    for sent in found.folded.sent:
        owed.pop(sent, None)
    for of, since in found.folded.again.items():
        if of in owed:
            owed[of] = outbox.renewed(owed[of], since)
    spool.owed = outbox.Outbox(owed)
