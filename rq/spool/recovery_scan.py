"""What lies on disk before anything is done about it: checkpoint, index, the fold."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from rq.journal import history
from rq.journal.segment_file import Content, read_segment
from rq.journal.segments import Position
from rq.layout import QueueDir
from rq.logs import fields
from rq.spool import checkpoint, index, transactions
from rq.spool.fold import Folded, fold, pack
from rq.spool.record import Record
from rq.spool.transactions import Transactions
from rq.states import Event, State

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Found:
    """What lies on disk before anything is done about it."""

    last: Position
    start: int
    journal: str
    boot: str
    folded: Folded
    checkpoint: checkpoint.Checkpoint | None
    index: index.Index | None
    keys: dict[str, tuple[str, float]]  # of deliveries: message, time
    txns: Transactions
    fresh: bool  # nothing was ever written here
    seen: float  # the last time, in epoch seconds, that could be believed


def look(queue: QueueDir, now: float) -> Found:
    point = checkpoint.read(queue)
    if point is None and queue.checkpoint.exists():
        _log.error(
            "the checkpoint cannot be believed; RQ replays all events that there are "
            "onto the folders: %s",
            fields(queue=queue.name),
        )
    place = queue.journal_dir
    active = history.active_segments(place)
    journal = history.journal_of(place, active) or _journal_of(point)
    known = _index(queue, journal, point)
    keys = dict(known.keys) if known else {}
    txns = Transactions(known.txns if known else ())
    if known is None:
        for event in _history(queue):
            _remember(keys, txns, event)
    end = _End(point)
    folded = fold(_new(queue, journal, point, known, keys, txns, end))
    return Found(
        last=end.last,
        start=max(end.start + 1, int(now)),
        journal=journal or secrets.token_hex(4),
        boot=end.boot,
        folded=folded,
        checkpoint=point,
        index=known,
        keys=keys,
        txns=txns,
        fresh=point is None and journal is None,
        seen=(point and point.journal.seen) or end.start or now,
    )


def _journal_of(point: checkpoint.Checkpoint | None) -> str | None:
    return point.journal.position.journal if point else None


def _index(
    queue: QueueDir, journal: str | None, point: checkpoint.Checkpoint | None
) -> index.Index | None:
    """Return the index. When there is none and the folders alone tell nothing, an empty
    one from which all events that ever were lead on, if they are all there: their lines
    are read much faster than the folders."""
    known = index.read(queue)
    if known is not None:
        return known if known.journal == journal else None
    whole = journal is not None and history.is_whole(queue.journal_dir, journal)
    clean = point is not None and point.clean
    return index.Index(journal, 0) if journal and whole and not clean else None


def _new(
    queue: QueueDir,
    journal: str | None,
    point: checkpoint.Checkpoint | None,
    known: index.Index | None,
    keys: dict[str, tuple[str, float]],
    txns: Transactions,
    end: _End,
) -> Iterator[Record]:
    """Give the events after the checkpoint; those before it bring the index up to it.
    One segment is in memory at a time."""
    after = point.seq if point else 0
    since = min(after, known.seq) if known else after
    reads = (
        history.events_after(queue.journal_dir, since, journal, pack) if journal else ()
    )
    for read in reads:
        end.take(read)
        for record in read.events:
            if record["seq"] <= since:
                continue
            event = transactions.expanded(queue, record)
            if known is not None:
                _remember(keys, txns, event)
            if event["seq"] > after:
                for out in event.get("out", ()):  # its key names its journal
                    out["journal"] = read.header["journal"]
                yield event
            elif known is not None:
                _freshen(known, event)


def _remember(
    keys: dict[str, tuple[str, float]], txns: Transactions, event: Record
) -> None:
    txns.take(event)
    if "key" in event:
        keys[event["key"]] = (event["msg"], event["ts"] / 1e6)


def _history(queue: QueueDir) -> Iterator[Record]:
    """Give all events that there are: no index tells of those long ago."""
    for one in history.segments(queue.journal_dir):
        if (read := read_segment(one, pack)) is not None:
            for event in read.events:
                yield transactions.expanded(queue, event)


class _End:
    """Where the journal ends, and who wrote it last."""

    def __init__(self, point: checkpoint.Checkpoint | None) -> None:
        self.last = Position("", 0, 0, 0)
        self.start, self.boot = 0, ""
        if point is not None:
            self.last = point.journal.position
            self.start, self.boot = point.journal.start, point.journal.boot

    def take(self, read: Content) -> None:
        """Take the next segment."""
        header = read.header
        self.start = max(self.start, int(header["start"]))
        self.boot = str(header["boot"])
        if not read.events:  # it will be replaced, so nothing can follow it
            segment, offset, seq = header["prev"]
            journal = str(header.get("of") or header["journal"])
            found = Position(segment, offset, seq, int(header["g"]), journal)
        else:
            tail = read.events[-1]
            found = Position(
                read.segment.name,
                read.end,
                tail["seq"],
                tail["g"],
                str(header["journal"]),
            )
        if found.seq >= self.last.seq:
            self.last = dataclasses.replace(found, g=max(found.g, self.last.g))


def _freshen(known: index.Index, record: Record) -> None:
    """Bring an index that is older than the checkpoint up to an event before it."""
    msg_id = record.get("msg")
    if msg_id is None or "state" not in record:
        return
    if record["state"] == State.QUE:
        before = known.known.get(msg_id)
        arrival = before if record["ev"] == Event.RESCHEDULE else None
        known.known[msg_id] = (
            record["due"],
            arrival[1] if arrival else record["seq"],
            record["count"],
            record["attempt"],
            arrival[4] if arrival else record["ts"] / 1e6,
            None,
        )
    elif record["state"] != State.RUN:
        known.known.pop(msg_id, None)


def was_clean(found: Found) -> bool:
    point = found.checkpoint
    return found.fresh or bool(point and point.clean and not found.folded.by_id)
