"""Opening a queue: lock, read, fold once, act once.

The steps, in the order that must not change

1. The lock. Busy if another process has it; only missing directories were made
   before.
2. `scan_queue` reads the checkpoint, the index and the lines after it. Nothing on disk
   changes. A journal that cannot be believed stops here (Damaged), for a person to decide;
   so does a directory that was copied or restored: then the events go to a stand-in that
   writes nothing (`DryRun`), and memory shows what the queue would do.
3. Processes that an earlier owner left are ended, or known to live on: no message runs
   again beside its last attempt.
4. The journal goes on in a new segment. The last one is made durable first, since the new
   header says where it ends; never is a line appended to a file of an earlier process.
5. Each message is acted on once (`recovery_apply`), by the last that the journal says of
   it and by where its folder lies. Chains of transactions (several that are decided with
   one, their head) go on, and so do leases that were out.
6. `commit`. Only after it is anything removed that earlier processes have left.

What is true at all times

- What the lines say is folded to one record for each message before anything is done: the
  work of a start grows with the messages that changed, not with their events.
- The table of what to do (`fold.decide`) is pure, and each act is an event like any other.
  So a start that is killed half way is repeated by the next one, with the same end.
- Folders that are still to be made or moved go into the lag, as those of any event do. A
  queue serves as soon as its memory is complete, and makes thousands of folders beside
  that.
- What cannot be read now, for lack of descriptors or memory, is not taken for absent: the
  start fails, and the next one tries again.

What may have happened before, and what follows from it

| end of the last process | its scripts | its files |
|---|---|---|
| a clean stop | none | believed as they lie: a person may have moved or edited them |
| a kill | may still run: ended first | whole as far as they were written |
| a power cut, a disk error | none | not believed, so written once more: `Opened.trusted` is false |

Counts of messages that have ended come from the checkpoint. They may be millions, and are
listed only where no checkpoint tells, or a clean stop shows that a directory has changed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from rq.errors import BadConfig, Busy, Refused
from rq.files import durable
from rq.journal import history, mark, sealing
from rq.journal.segment_file import read_header, read_segment
from rq.journal.segments import Author
from rq.journal.writer import DryRun, Journal
from rq.layout import QUEUE_DIRS, JournalDir, QueueDir
from rq.message.causes import Cause
from rq.message.fields import JsonObject
from rq.proc import lease_holders, locks, processes
from rq.spool import (
    adoption,
    batch_dirs,
    bulk,
    checkpoint,
    decisions,
    outbox,
    restored,
    rows,
    transactions,
)
from rq.spool.entry import Counts
from rq.spool.leases import IN_LINE
from rq.spool.memory import NO_RANKS, Memory
from rq.spool.news import Owes, owes_nothing
from rq.spool.recovery_apply import Opened, apply
from rq.spool.recovery_scan import Scan, scan_queue, was_clean
from rq.spool.store import Rule, Spool
from rq.spool.uniques import Keys, Uniques
from rq.words.states import HASHED, State

HOUR = 3600.0
MOST_UNSEALED = 100  # segments
QUE_BYTES = 8 * 1024 * 1024  # of an empty directory que/

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


def counts_at_stop(queue: QueueDir) -> Counts | None:
    """Return what the last clean end counted; None when there is none that can be
    believed."""
    point = checkpoint.read(queue)
    if point is None or not stopped_cleanly(queue):
        return None
    waiting = point.counts.of(State.QUE) + _rows_of(point)
    point.counts.by_state[State.QUE] = waiting
    return point.counts


def rows_left(queue: QueueDir) -> list[rows.Rows]:
    """Return the files of rows that are accepted and have still to become messages."""
    return list(scan_queue(queue, time.time()).txns.stock)


def rows_counted(queue: QueueDir) -> int:
    """Return how many accepted rows have still to become messages, by what lies on
    disk."""
    point = checkpoint.read(queue)
    if point is None or not point.rows:
        return 0
    if stopped_cleanly(queue):
        return _rows_of(point)
    return sum(file.left for file in rows_left(queue))


def _rows_of(point: checkpoint.Checkpoint) -> int:
    return sum(rows.Rows(*row).left for _, _, files in point.rows for row in files)


def open_spool(
    queue: QueueDir,
    *,
    threads: Executor | None = None,
    clock: Callable[[], float] = time.time,
    grace: float = 10.0,
    owes: Owes = owes_nothing,
    retry: Rule = lambda: None,
    keys: Keys | None = None,
    parked_at: tuple[str, int] | None = None,
) -> Opened:
    """Take the lock of a queue and recover it; `owes` tells what messages owe others
    whose attempts were lost once too often, `retry` when lost ones are made again.
    `grace` is how many seconds processes that an earlier owner left have for their end.
    `keys` makes unique keys. `parked_at`: journal and last event with which it
    was parked; if they are these still, its last process had no child when it ended.

    Busy: another process owns it. Damaged: its journal cannot be believed.
    """
    _make_missing(queue)
    lock = locks.lock(queue.lock)
    if lock is None:
        raise Busy(
            f"another process runs queue {queue.name}, and only one can: end that first"
        )
    dir_fd = os.open(queue.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        opening = _Opening(queue, lock, dir_fd, threads, clock, owes, retry, keys)
        return opening.open(grace, parked_at)
    except BaseException:
        os.close(dir_fd)
        os.close(lock)
        raise


def _make_missing(queue: QueueDir) -> None:
    missing = _missing(queue)
    check_link(queue)
    for name in missing:
        durable.make_dirs(str(queue.path / name))
    if missing:
        durable.sync_path(queue.path)  # what is promised in there must be found


def _missing(queue: QueueDir) -> list[str]:
    return [name for name in QUEUE_DIRS if not (queue.path / name).is_dir()]


def check_link(queue: QueueDir) -> None:
    """Refused when the path of a queue is a link to what is no whole queue: nothing is
    made there, where it may be anybody's directory."""
    if queue.path.is_symlink() and (missing := _missing(queue)):
        raise Refused(
            f"{queue.path} is a link to {queue.path.readlink()}, which is no queue: it has "
            f"no {missing[0]}/"
        )


@dataclass(frozen=True, slots=True)
class _Opening:
    """Opens a queue whose lock is held."""

    queue: QueueDir
    lock: int
    dir_fd: int
    threads: Executor | None
    clock: Callable[[], float]
    owes: Owes
    retry: Rule
    keys: Keys | None

    def open(self, grace: float, parked_at: tuple[str, int] | None) -> Opened:
        """Recover the queue, or show what recovery would do."""
        _check_device(self.queue)
        scan = scan_queue(self.queue, self.clock())
        if (why := restored.why_waiting(self.queue)) is not None:
            return self._open_waiting(scan, why)
        left = [] if _is_as_parked(scan, parked_at) else self._end_left(scan, grace)
        if scan.fresh:
            adoption.adopt_modes(self.queue)
            adoption.adopt_files(self.queue)
            adoption.note(self.queue, self.clock())
        opened = self._opened(scan, self._begin_journal(scan))
        opened.left_processes = batch_dirs.members(self.queue, left)
        apply(opened, scan, Cause.CRASH if _is_same_boot(scan) else Cause.HOST)
        decisions.finish_all(opened.spool, scan.folded)
        for msg_id, place in scan.folded.places.items():
            opened.spool.keep_place(msg_id, place)
        if scan.journal != opened.spool.journal_id:
            _hold_waiting(opened.spool)
        if opened.clean:
            _go_on_with_leases(opened.spool)
        opened.spool.commit()
        if opened.spool.last_seq == scan.last.seq:
            opened.seq, opened.seen = scan.last.seq, opened.spool.seen
        self._clear(opened, scan, {process.msg_id for process in left})
        return opened

    def _end_left(self, scan: Scan, grace: float) -> list[processes.Holder]:
        """End processes that an earlier owner left; return those that do not end."""
        prefix = lease_holders.prefix_of(self.queue, scan.journal)
        left: list[processes.Holder] = []
        if _is_same_boot(scan):
            left += lease_holders.end_left(self.queue, prefix, grace)
        left += lease_holders.of_ancestor(self.queue)
        return left

    def _begin_journal(self, scan: Scan) -> Journal:
        """Open a new segment; those of earlier processes become history, those of a parked queue later. In this order:
        what the new one says that it follows has to be on disk before it says so."""
        place = self.queue.journal_dir
        stays = _stays_unsealed(scan, place, self.clock())
        if not stays:
            sealing.seal_last(place, self.dir_fd, scan.journal)
        journal_id = mark.goes_on_as(place, scan.journal)
        if not (stays and mark.is_written(place, journal_id)):
            mark.write(place, self.dir_fd, journal_id, scan.journal)
        author = Author(journal_id, scan.start, processes.boot_id())
        journal = Journal(place, self.dir_fd, author, scan.last, self.threads)
        durable.crash_point("recovery:before-retire")
        if stays:
            journal.leave(unsealed=True)
        else:
            sealing.seal_left(place, self.dir_fd, scan.journal, journal.segment)
        return journal

    def _opened(
        self, scan: Scan, journal: Journal | DryRun, why: str | None = None
    ) -> Opened:
        memory = _memory(scan, adoption.at(self.queue))
        spool = Spool(
            self.queue,
            self.dir_fd,
            journal,
            memory,
            clock=self.clock,
            threads=self.threads,
            owes=self.owes,
            retry=self.retry,
        )
        spool.uniques.keys = self.keys
        prefix = lease_holders.prefix_of(self.queue, journal.journal_id)
        trusted = why is None and _is_same_boot(scan) and not scan.folded.suspect
        return Opened(spool, self.lock, prefix, was_clean(scan), trusted, restored=why)

    def _clear(self, opened: Opened, scan: Scan, running: set[str]) -> None:
        """Remove what earlier processes have left, but what is of those `running`."""
        spool = opened.spool
        transactions.clear_manifests(self.queue, spool.txns, scan.folded.listed)
        bulk.clear_lists(self.queue, spool.bulks)
        self._clear_rows(spool.txns.files_of_rows(), scan.index is not None)
        batch_dirs.clear(spool, running)
        spool.gone.take_over()
        if opened.clean:
            _renew_que(spool)

    def _clear_rows(self, files: set[str], all_are_known: bool) -> None:
        """Remove files of rows that are of no use; if what told of them is lost, it is
        not known which these are."""
        if all_are_known:
            rows.clear(self.queue, files)
        elif names := rows.set_aside(self.queue, files):
            _log.error(
                "%s: %s lie in %s, and nothing tells any more whether they were accepted: "
                "look at them, send those again that have not run, and remove the files",
                self.queue.name,
                ", ".join(names),
                self.queue.journal,
            )

    def _open_waiting(self, scan: Scan, why: str) -> Opened:
        """Show what recovery would do in a queue that waits for a decision; nothing
        on disk changes."""
        _log.error("%s: %s", self.queue.name, why)
        opened = self._opened(scan, DryRun(scan.journal, scan.start, scan.last), why)
        apply(opened, scan, Cause.CRASH)
        return opened


def _is_as_parked(scan: Scan, parked_at: tuple[str, int] | None) -> bool:
    """Whether all lies as a process has left it that was parked; a copy of before may have
    been laid over it."""
    if parked_at is None or not was_clean(scan):
        return False
    lies = scan.journal, scan.last.seq
    if lies != parked_at:
        _log.warning(
            "the journal ends at %s/%s, and did at %s/%s when the queue was parked: it was "
            "edited or replaced since, and is looked at as a whole",
            *lies,
            *parked_at,
        )
    return lies == parked_at


def _stays_unsealed(scan: Scan, place: JournalDir, now: float) -> bool:
    """Whether the segments of a queue that was parked stay where they are until the hour is
    over: they were closed whole, and are on disk."""
    if not was_clean(scan) or not _is_same_boot(scan):
        return False
    active = history.active_segments(place)
    header = read_header(active[-1].path) if active else None
    if header is None or len(active) > MOST_UNSEALED:
        return False
    return int(header["ts"] / 1e6 // HOUR) == int(now // HOUR)


def _is_same_boot(scan: Scan) -> bool:
    return scan.boot == processes.boot_id()


def _check_device(queue: QueueDir) -> None:
    devices = {os.stat(queue.path / name).st_dev for name in QUEUE_DIRS}
    if len(devices | {os.stat(queue.path).st_dev}) > 1:
        raise BadConfig(
            f"{queue.path}: its directories are not on one file system; a rename "
            "between them could not be atomic"
        )


def _renew_que(spool: Spool) -> None:
    """Replace an empty que/ that once held very many: listing it stays slow."""
    if spool.counts.of(State.QUE) or spool.counts.of(State.RUN) or spool.unsettled:
        return
    size = os.stat("que", dir_fd=spool.dir_fd).st_size
    if size > QUE_BYTES and durable.remove_dir("que", spool.dir_fd):
        durable.make_dir("que", spool.dir_fd)


def _hold_waiting(spool: Spool) -> None:
    """Hold the messages of a copied queue that wait for others: those run in the queue
    that it was copied from, too, and a person says which of the two is to go on."""
    hold: JsonObject = {
        "by": "RQ",
        "why": "its queue is a copy, and it waits for others in the first one, too",
        "since": spool.clock(),
    }
    waiting = [
        msg_id
        for msg_id, entry in spool.in_state(State.QUE)
        if entry.after is not None and not entry.held
    ]
    for msg_id in waiting:
        spool.hold(msg_id, hold)
        spool.commit_when_full()


def _go_on_with_leases(spool: Spool) -> None:
    """Write down that leases go on which a clean stop has saved: after a crash they would
    else be as old as their last renewal before the stop."""
    held = list(spool.leases.values())
    for at in range(0, len(held), IN_LINE):
        spool.lease_notes.renew(held[at : at + IN_LINE], 0.0)
        spool.commit_when_full()


# ---- memory


def _memory(scan: Scan, adopted: float) -> Memory:
    """Return what the journal tells at once; messages are added one by one."""
    return Memory(
        counts=_counts(scan),
        keys=scan.keys,
        txns=scan.txns,
        ended_leases=scan.ended_leases,
        bulks=scan.bulks,
        news=scan.news,
        uniques=Uniques(scan.accepted, scan.index.unique if scan.index else None),
        owed=outbox.Outbox(_owed(scan)),
        standings={
            **(scan.checkpoint.standings if scan.checkpoint else {}),
            **scan.folded.standings,
        },
        compares=scan.index.compares if scan.index else (),
        ranks=scan.index.ranks if scan.index else NO_RANKS,
        adopted=adopted,
        seen=scan.seen,
    )


def _counts(scan: Scan) -> Counts:
    """Return the counts of final states; the live ones are added as they are found."""
    counts = Counts()
    point = scan.checkpoint
    for state in HASHED:
        if point is not None:
            counts.by_state[state] = point.counts.of(state)
            counts.by_state[state] += scan.folded.deltas[state]
    return counts


def _owed(scan: Scan) -> dict[outbox.Of, outbox.Owed]:
    """Return what is owed: as of the checkpoint, and by the lines after it."""
    owed = dict(scan.checkpoint.owed) if scan.checkpoint else {}
    for seq, number, out, since in scan.folded.owed:
        of = seq, number
        owed[of] = outbox.owed(out, out["msg"], since, out["journal"], of)
    for sent in scan.folded.sent:
        owed.pop(sent, None)
    for of, since in scan.folded.again.items():
        if of in owed:
            owed[of] = outbox.renewed(owed[of], since)
    return owed
