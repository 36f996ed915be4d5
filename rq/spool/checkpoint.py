"""The checkpoint: all events up to a seq are in the folders, and the folders on disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from rq.files import durable
from rq.journal import checkpoint as envelope
from rq.layout import QueueDir
from rq.proc import locks, processes
from rq.spool import index, outbox
from rq.spool.entry import Counts, counts_from
from rq.spool.leases import Held, held_from
from rq.spool.outbox import Owed
from rq.spool.store import Spool
from rq.words.states import Note, State

AFTER_BYTES = 64 * 1024 * 1024
AFTER_SECONDS = 60.0
_AT_ONCE = 1000  # leases


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What holds of a queue as of event `seq`."""

    journal: envelope.Checkpoint  # without content
    counts: Counts
    running: Mapping[str, int] = field(default_factory=dict)  # msg_id: attempt
    owed: Mapping[outbox.Of, Owed] = field(default_factory=dict)
    leases: Mapping[str, Held] = field(default_factory=dict)  # that are out, by msg_id
    bulks: Sequence[dict[str, Any]] = ()  # as `Bulks` takes them
    news: Mapping[str, Any] = field(default_factory=dict)  # as `News` takes it
    rows: Sequence[list[Any]] = ()  # as `Transactions.recall_rows` takes them
    # How messages stand for which others wait.
    standings: Mapping[str, str] = field(default_factory=dict)

    @property
    def seq(self) -> int:
        """The last event that it covers."""
        return self.journal.position.seq

    @property
    def clean(self) -> bool:
        """Whether a clean stop has written it."""
        return self.journal.clean

    def whole(self) -> envelope.Checkpoint:
        """Return it as the journal writes it."""
        content = {
            "counts": self.counts.to_json(),
            "running": self.running,
            "owed": outbox.to_json(self.owed),
            "leases": _leases(self.leases),
            "bulks": self.bulks,
            "news": self.news,
            **({"rows": self.rows} if self.rows else {}),
            **({"standings": self.standings} if self.standings else {}),
        }
        return replace(self.journal, content=content)


def _leases(leases: Mapping[str, Held]) -> orjson.Fragment:
    """Return leases as JSON, written some at a time: a thread that writes a hundred
    thousand at once keeps all others from running meanwhile."""
    ids, parts = list(leases), list[bytes]()
    for at in range(0, len(ids), _AT_ONCE):
        some = {i: leases[i].to_json() for i in ids[at : at + _AT_ONCE]}
        parts.append(orjson.dumps(some)[1:-1])
    return orjson.Fragment(b"{%b}" % b",".join(parts))


def read(queue: QueueDir) -> Checkpoint | None:
    """Return the checkpoint of a queue; None when there is none that can be used.

    OSError: it cannot be read now; what is owed may stand there alone.
    """
    point = envelope.read(queue.journal_dir)
    if point is None:
        return None
    try:
        content: dict[str, Any] = dict(point.content)
        content["counts"] = counts_from(content["counts"])
        content["owed"] = outbox.from_json(content["owed"], point.position.journal)
        leases = content.get("leases", {})
        content["leases"] = {i: held_from(values) for i, values in leases.items()}
        return Checkpoint(journal=replace(point, content={}), **content)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def begin(spool: Spool, boot: str, clean: bool = False) -> Checkpoint:
    """Note what holds now, right after a commit; the folders it waits for become the
    spool's barrier."""
    spool.lagging.begin_barrier()
    spool.journal.bytes_written = 0
    running = {
        msg_id: entry.attempt
        for msg_id, entry in spool.entries.items()
        if entry.state is State.RUN
    }
    point = envelope.Checkpoint(
        position=spool.journal.position,
        start=spool.journal.start,
        boot=boot,
        clean=clean,
        seen=spool.seen,
    )
    return Checkpoint(
        journal=point,
        counts=Counts(dict(spool.counts.by_state)),
        running=running,
        owed=spool.owed.copy(),
        leases=spool.leases.copy(),
        bulks=spool.bulks.to_json(),
        news=spool.news.to_json(),
        rows=spool.txns.rows_to_json(),
        standings=spool.standings.copy(),
    )


def finish(spool_fd: int, queue: QueueDir, point: Checkpoint) -> None:
    """Make the folders durable and then the checkpoint; for a thread, once the barrier
    is empty. OSError: nothing that was written since the last one may be trusted.
    Refused: there was no room for it; try again later.

    One at a time in a root, so that many owners do not sync one disk together.
    """
    with _turn(queue):
        durable.crash_point("checkpoint:before-syncfs")
        durable.sync_filesystem(spool_fd)
        durable.crash_point("checkpoint:after-syncfs")
        envelope.write(spool_fd, point.whole())


@contextlib.contextmanager
def _turn(queue: QueueDir) -> Iterator[None]:
    try:
        turn = locks.lock_waiting(turn_file(queue))
    except OSError as error:
        raise envelope.put_off(error) from None
    try:
        yield
    finally:
        os.close(turn)


def stop(spool: Spool) -> None:
    """Write a clean end: `stopped` is the last line, and the checkpoint covers it.

    All is settled. Blocks; OSError or DiskFailed: the end was not clean.
    """
    spool.note(Note.STOPPED)
    spool.commit()
    _end(spool, spool.journal.close)


def _end(spool: Spool, close: Callable[[], None]) -> None:
    writing = index.Writing(spool.dir_fd, index.lines_of(spool))
    while writing.write_slice(1000):
        pass
    writing.finish()
    durable.crash_point("stop:before-checkpoint")
    point = begin(spool, processes.boot_id(), clean=True)
    close()
    finish(spool.dir_fd, spool.queue, point)


def park(spool: Spool, is_as_found: bool) -> None:
    """As `stop`, of a queue that is parked: what it wrote is no history yet. One that is as
    it was found writes nothing: the checkpoint of before says all."""
    if is_as_found:
        spool.journal.park()
        return
    spool.note(Note.STOPPED)
    spool.commit()
    _end(spool, spool.journal.park)


def turn_file(queue: QueueDir) -> Path:
    return queue.path.parent / ".checkpoint.lock"
