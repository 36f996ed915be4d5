"""What lies on disk before anything is done about it: checkpoint, index, the fold."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rq.layout import QueueDir
from rq.logs import fields
from rq.spool import checkpoint, history, index, transactions
from rq.spool.fold import Folded, fold
from rq.spool.segments import Position
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


def look(queue: QueueDir, now: float) -> Found:
    point = checkpoint.read(queue)
    if point is None and queue.checkpoint.exists():
        _log.error(
            "the checkpoint cannot be believed; RQ replays all events that there are "
            "onto the folders: %s",
            fields(queue=queue.name),
        )
    known = index.read(queue)
    active = history.active_segments(queue)
    journal = history.journal_of(queue, active) or (point.journal if point else None)
    if known is not None and known.journal != journal:
        known = None
    after = point.seq if point else 0
    since = min(after, known.seq) if known else after
    reads = list(history.events_after(queue, since, journal)) if journal else []
    last, start, boot = _last(point, reads)
    events = [
        transactions.expanded(queue, event)
        for read in reads
        for event in read.events
        if event["seq"] > since
    ]
    old = [event for event in events if event["seq"] <= after]
    new = [event for event in events if event["seq"] > after]
    _freshen(known, old)
    keys, txns = _remembered(known, _once(events) if known else _history(queue))
    return Found(
        last=last,
        start=max(start + 1, int(now)),
        journal=journal or secrets.token_hex(4),
        boot=boot,
        folded=fold(_once(new)),
        checkpoint=point,
        index=known,
        keys=keys,
        txns=txns,
        fresh=point is None and journal is None,
    )


def _history(queue: QueueDir) -> Iterator[dict[str, Any]]:
    """Give all events that there are: no index tells of those long ago."""
    for one in history.segments(queue):
        if (read := history.read_segment(one)) is not None:
            for event in read.events:
                yield transactions.expanded(queue, event)


def _remembered(
    known: index.Index | None, events: Iterable[dict[str, Any]]
) -> tuple[dict[str, tuple[str, float]], Transactions]:
    """Return the keys and the transactions that an index tells of, and `events`."""
    keys = dict(known.keys) if known else {}
    txns = Transactions(known.txns if known else ())
    for event in events:
        txns.take(event)
        if "key" in event:
            keys[event["key"]] = (event["msg"], event["ts"] / 1e6)
    return keys, txns


def _last(
    point: checkpoint.Checkpoint | None, reads: list[history.Read]
) -> tuple[Position, int, str]:
    last = Position("", 0, 0, 0)
    start, boot = 0, ""
    if point is not None:
        last = Position(point.segment, point.offset, point.seq, point.g)
        start, boot = point.start, point.boot
    for read in reads:
        start, boot = max(start, int(read.header["start"])), str(read.header["boot"])
        if not read.events:  # it will be replaced, so nothing can follow it
            segment, offset, seq = read.header["prev"]
            found = Position(segment, offset, seq, int(read.header["g"]))
        else:
            tail = read.events[-1]
            found = Position(read.segment.name, read.end, tail["seq"], tail["g"])
        if found.seq >= last.seq:
            last = dataclasses.replace(found, g=max(found.g, last.g))
    return last, start, boot


def _once(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of two events with one seq keep the later written; in the order of seq."""
    by_seq = {event["seq"]: event for event in events}
    return [by_seq[seq] for seq in sorted(by_seq)]


def _freshen(known: index.Index | None, events: Iterable[dict[str, Any]]) -> None:
    """Bring an index that is older than the checkpoint up to it."""
    if known is None:
        return
    for record in events:
        msg_id = record.get("msg")
        if msg_id is None or "state" not in record:
            continue
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
