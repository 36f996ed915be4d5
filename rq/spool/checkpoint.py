"""The checkpoint: all events up to a seq are in the folders, and the folders on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rq import durable
from rq.errors import Refused, cause_of, is_busy, is_no_room, is_of_disk
from rq.journal import line
from rq.layout import QueueDir
from rq.proc import locks, processes
from rq.spool import index, outbox
from rq.spool.entry import Counts, counts_from
from rq.spool.outbox import Owed
from rq.spool.store import Spool
from rq.states import Note, State

AFTER_BYTES = 64 * 1024 * 1024
AFTER_SECONDS = 60.0
_SEED = line.seed("", "checkpoint")  # what its checksum starts from


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What holds as of event `seq`."""

    journal: str
    segment: str
    offset: int
    seq: int
    g: int
    start: int
    boot: str
    counts: Counts
    running: Mapping[str, int] = field(default_factory=dict)  # msg_id: attempt
    owed: Mapping[tuple[int, int], Owed] = field(default_factory=dict)
    clean: bool = False  # written by a clean stop
    seen: float = 0.0  # the last time that could be believed; 0: not known

    def encode(self) -> bytes:
        shown: dict[str, Any] = {
            "journal": self.journal,
            "segment": self.segment,
            "offset": self.offset,
            "seq": self.seq,
            "g": self.g,
            "start": self.start,
            "boot": self.boot,
            "counts": self.counts.to_json(),
            "running": self.running,
            "owed": outbox.to_json(self.owed),
            "clean": self.clean,
            "seen": self.seen,
        }
        return line.sealed(line.body(shown), _SEED)


def read(queue: QueueDir) -> Checkpoint | None:
    """Return the checkpoint of a queue; None when there is none that can be used: a
    changed bit is found by its checksum, for nothing else would contradict it.

    OSError: RQ lacks what it takes to look, and what is owed may stand there alone.
    """
    try:
        data = line.read_object(queue.checkpoint.read_bytes(), _SEED)
        if data is None:
            return None
        return Checkpoint(
            **{
                **data,
                "counts": counts_from(data["counts"]),
                "owed": outbox.from_json(data["owed"], data["journal"]),
            }
        )
    except OSError as error:
        if is_busy(error):
            raise
        return None
    except (ValueError, KeyError, TypeError):
        return None


def begin(spool: Spool, boot: str, clean: bool = False) -> Checkpoint:
    """Note what holds now, right after a commit; the folders it waits for become the
    spool's barrier."""
    position = spool.journal.position
    spool.lagging.barrier = set(spool.unsettled)
    running = {
        msg_id: one.attempt
        for msg_id, one in spool.entries.items()
        if one.state is State.RUN
    }
    return Checkpoint(
        journal=spool.journal.journal_id,
        segment=position.segment,
        offset=position.offset,
        seq=position.seq,
        g=position.g,
        start=spool.journal.start,
        boot=boot,
        counts=Counts(dict(spool.counts.by_state)),
        running=running,
        owed=spool.owed.copy(),
        clean=clean,
        seen=spool.seen,
    )


def finish(spool_fd: int, queue: QueueDir, point: Checkpoint) -> None:
    """Make the folders durable and then the checkpoint; for a thread, once the barrier
    is empty. OSError: nothing that was written since the last one may be trusted.
    Refused: there was no room for it; try again later.

    One at a time in a root, so that many owners do not sync one disk together.
    """
    turn = _turn(queue)
    try:
        durable.crash_point("checkpoint:before-syncfs")
        durable.sync_filesystem(spool_fd)
        durable.crash_point("checkpoint:after-syncfs")
        _write(queue, point)
    finally:
        os.close(turn)


def _turn(queue: QueueDir) -> int:
    try:
        return locks.lock_waiting(turn_file(queue))
    except OSError as error:
        raise _put_off(error) from None


def _put_off(error: OSError) -> Exception:
    """Return Refused where nothing is lost: the last checkpoint still holds."""
    if is_busy(error) or is_no_room(error):
        return Refused(f"no room for a checkpoint: {error.strerror}")
    if is_of_disk(error):
        return error
    return Refused(f"no checkpoint can be written: {cause_of(error)}")


def _write(queue: QueueDir, point: Checkpoint) -> None:
    try:
        durable.write_durable(queue.checkpoint, point.encode())
    except OSError as error:
        raise _put_off(error) from None


def stop(spool: Spool) -> None:
    """Write a clean end: `stopped` is the last line, and the checkpoint covers it.

    All is settled. Blocks; OSError or DiskFailed: the end was not clean.
    """
    spool.note(Note.STOPPED)
    spool.commit()
    writing = index.Writing(  # now: another event could get a number that is only meant
        spool.queue,
        index.lines(
            spool.journal.journal_id,
            spool.journal.seq,
            spool.entries,
            spool.keys,
            spool.txns,
            spool.compares,
        ),
    )
    while writing.write_slice(1000):
        pass
    writing.finish()
    durable.crash_point("stop:before-checkpoint")
    point = begin(spool, processes.boot_id(), clean=True)
    spool.journal.close()
    finish(spool.dir_fd, spool.queue, point)


def turn_file(queue: QueueDir) -> Path:
    return queue.path.parent / ".checkpoint.lock"
