"""A start reads what lies on disk, and changes nothing: checkpoint, index, the lines after
them, and where the folders are.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from rq import names
from rq.errors import BadMessage, NoSuchMessage, Unread
from rq.files import beneath
from rq.journal import history
from rq.journal.checkpoint import End
from rq.journal.segment_file import read_segment
from rq.journal.segments import Position
from rq.layout import ATTACH, QueueDir
from rq.logs import fields
from rq.message.after import Wait
from rq.message.rank import rank
from rq.spool import after_list, checkpoint, folders, index, transactions
from rq.spool.bulk import Bulks
from rq.spool.entry import Entry
from rq.spool.fold import Fold, Folded, fold, pack
from rq.spool.leases import EndedLeases, Held
from rq.spool.memory import Accepted
from rq.spool.news import News
from rq.spool.record import Record
from rq.spool.transactions import Transactions
from rq.spool.uniques import Last
from rq.words.states import HASHED, Event, Note, State

_log = logging.getLogger(__name__)
LOOK_FOR = 1.0  # seconds at a start, at most: the queue does not serve meanwhile


@dataclass(slots=True)
class Scan:
    """What lies on disk before anything is done about it."""

    last: Position
    start: int
    journal: str
    boot: str
    folded: Folded
    checkpoint: checkpoint.Checkpoint | None
    index: index.Index | None
    keys: dict[str, Accepted]  # of deliveries: message, time
    accepted: dict[str, Last]  # by unique key: who was accepted last
    txns: Transactions
    ended_leases: EndedLeases
    bulks: Bulks
    news: News
    fresh: bool  # nothing was ever written here
    seen: float  # the last time, in epoch seconds, that could be believed

    @property
    def leases(self) -> Mapping[str, Held]:
        """The leases that were out as of the checkpoint."""
        return self.checkpoint.leases if self.checkpoint else {}


def scan_queue(queue: QueueDir, now: float) -> Scan:
    """Read what lies on disk; nothing is changed."""
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
    start = _index(queue, journal, point)
    keys = dict(start.keys) if start else {}
    txns = Transactions(*(start.txns, start.preparers) if start else ())
    ended = EndedLeases(start.ended if start else ())
    last = dict(start.last) if start else {}
    past = _Past(keys, txns, ended, last)
    if start is None:
        for event in _history(queue):
            past.take(event)
    end = End(point.journal if point else None)
    bulks = Bulks(point.bulks if point else ())
    news = News(point.news if point else None)
    reader = _Reader(queue, journal, start, past, bulks, news)
    folded = fold(reader.after(point, end))
    txns.recall_rows(point.rows if point and start is None else ())
    return Scan(
        last=end.last,
        start=max(end.start + 1, int(now)),
        journal=journal or secrets.token_hex(4),
        boot=end.boot,
        folded=folded,
        checkpoint=point,
        index=start,
        keys=keys,
        accepted=last,
        txns=txns,
        ended_leases=ended,
        bulks=bulks,
        news=news,
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
    stored = index.read(queue)
    if stored is not None:
        return stored if stored.journal == journal else None
    whole = journal is not None and history.is_whole(queue.journal_dir, journal)
    clean = point is not None and point.clean
    return index.Index(journal, 0) if journal and whole and not clean else None


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the events of a journal; brings an index and what is remembered up to them."""

    queue: QueueDir
    journal: str | None
    index: index.Index | None
    past: _Past
    bulks: Bulks  # as of the checkpoint
    news: News  # as of the checkpoint

    def after(self, point: checkpoint.Checkpoint | None, end: End) -> Iterator[Record]:
        """Give the events after the checkpoint, which bring bulks and what was told up
        to date; those before it bring the index up to it."""
        after, old = point.seq if point else 0, self.index
        since = min(after, old.seq) if old else after
        for event in self._since(since, end):
            if old is not None:
                self.past.take(event)
            if event["seq"] > after:
                if "bulk" in event:
                    self.bulks.take(event)
                self.news.take(event)
                yield event
            elif old is not None:
                _freshen(old, event, self.queue)

    def _since(self, seq: int, end: End) -> Iterator[Record]:
        """Give the events after `seq`; one segment is in memory at a time."""
        if self.journal is None:
            return
        place = self.queue.journal_dir
        for content in history.events_after(place, seq, self.journal, pack):
            end.take(content)
            for line in content.events:
                if line["seq"] <= seq:
                    continue
                event = transactions.expanded(self.queue, line)
                for entry in event.get("out", ()):  # its key names its journal
                    entry["journal"] = content.header["journal"]
                yield event


@dataclass(frozen=True, slots=True)
class _Past:
    """What is remembered of events, whatever became of their messages since."""

    keys: dict[str, Accepted]  # of deliveries: message, time
    txns: Transactions
    ended: EndedLeases
    last: dict[str, Last]  # by unique key: who was accepted last

    def take(self, event: Record) -> None:
        """Remember what an event tells."""
        self.txns.take(event)
        self.ended.take(event)
        at = event["ts"] / 1e6
        if "key" in event:
            body, joined = event.get("body", ""), event["ev"] == Note.JOIN
            self.keys[event["key"]] = Accepted(event["msg"], at, body, joined)
        if "unique" in event:
            self._take_unique(event["unique"], event["msg"], event["ev"], at)
        for key, msg_id in zip(
            event.get("uniques", ()), event.get("msgs", ()), strict=False
        ):
            self._take_unique(key, msg_id, event["ev"], at)

    def _take_unique(self, key: str, msg_id: str, event: str, at: float) -> None:
        """Remember who was accepted last under a unique key."""
        last = self.last.get(key)
        if event == Event.COMMIT:
            if key:
                self.last[key] = Last(msg_id, at)
        elif last is not None and last.msg_id == msg_id:  # removed before it ran
            del self.last[key]


def _history(queue: QueueDir) -> Iterator[Record]:
    """Give all events that there are: no index tells of those long ago."""
    for segment in history.segments(queue.journal_dir):
        if (content := read_segment(segment, pack)) is not None:
            for line in content.events:
                yield transactions.expanded(queue, line)


def _freshen(old: index.Index, record: Record, queue: QueueDir) -> None:
    """Bring an index that is older than the checkpoint up to an event before it."""
    msg_id = record.get("msg")
    if msg_id is None or "state" not in record:
        return
    old.held.discard(msg_id)
    if record["state"] == State.QUE and _is_held(record.get("message")):
        old.held.add(msg_id)
    _freshen_wait(old, record, queue)
    old.uniques.pop(msg_id, None)
    if record["state"] == State.QUE:
        before = old.entries.get(msg_id)
        arrival = before if record["ev"] == Event.RESCHEDULE else None
        entry = old.entries[msg_id] = Entry(
            State.QUE,
            State.QUE,
            record["due"],
            arrival.seq if arrival else record["seq"],
            record["count"],
            record["attempt"],
            arrival.since if arrival else record["ts"] / 1e6,
        )
        entry.rank = rank(record.get("priority", 0))
    elif record["state"] != State.RUN:
        old.entries.pop(msg_id, None)


def _freshen_wait(old: index.Index, record: Record, queue: QueueDir) -> None:
    """Bring up to an event what a message waits for; most name no other."""
    msg_id, message = record["msg"], record.get("message")
    if record["state"] != State.QUE:
        old.waits.pop(msg_id, None)
    elif isinstance(message, bytes):
        old.waits.pop(msg_id, None)
        wait = _wait_in(message, msg_id, queue) if _NAMES_OTHERS(message) else None
        if wait is not None:
            old.waits[msg_id] = wait


_NAMES_OTHERS = re.compile(b'"after(_file)?":').search


def _wait_in(message: bytes, msg_id: str, queue: QueueDir) -> Wait | None:
    """Return what a message in que waits for. Its folder is there, or it has left que
    since, which later lines tell."""
    with beneath.top(queue.path) as top:
        return after_list.wait_of(orjson.loads(message), f"que/{msg_id}", top)


def _is_held(message: object) -> bool:
    """Whether a message, as JSON, is held. Of a million few are, so few are read."""
    if not isinstance(message, bytes) or b'"held":' not in message:
        return False
    return bool(orjson.loads(message).get("held"))


def was_clean(scan: Scan) -> bool:
    """Whether the end before was a clean stop, or there was none before."""
    point = scan.checkpoint
    return scan.fresh or bool(point and point.clean and not scan.folded.by_id)


# ---- where folders lie


def list_places(queue: QueueDir, folds: Mapping[str, Fold]) -> dict[str, State]:
    """Return the state whose directory holds the folder of each message."""
    places: dict[str, State] = {}
    for state in (State.PREP, State.QUE, State.RUN, State.ERR):
        for name in os.listdir(queue.path / state):
            dotted = state is State.ERR and name.startswith(".")
            msg_id = name.removeprefix(".") if dotted else name
            if not names.is_msg_id(msg_id):
                continue
            at = State.DISMISSED if dotted else state
            if msg_id in places:
                at = _truer(queue, msg_id, (at, places[msg_id]), folds.get(msg_id))
            places[msg_id] = at
    return places


def _truer(
    queue: QueueDir, msg_id: str, both: tuple[State, State], fold: Fold | None
) -> State:
    """Return in which of two places the message lies; the other folder was made by hand,
    and goes when it is in the way."""
    whole = [at for at in both if _is_whole(queue, at, msg_id)] or both
    expected = [at for at in whole if fold is not None and at is fold.state]
    return (expected or whole)[0]


def _is_whole(queue: QueueDir, at: State, msg_id: str) -> bool:
    try:
        message = folders.read_message(queue, at, msg_id)
        attach = queue.message(at, msg_id) / ATTACH
        return all(
            os.lstat(attach / name).st_size == attachment.size
            for name, attachment in message.attachments.items()
        )
    except Unread:
        raise
    except (BadMessage, NoSuchMessage, FileNotFoundError, NotADirectoryError):
        return False


def ended_have_changed(queue: QueueDir) -> bool:
    """Whether a directory of `done` or `relayed` has changed since the checkpoint of a
    clean stop. Looks at directories alone, one a minute of the past, newest first."""
    try:
        since = os.stat(queue.checkpoint).st_ctime_ns
    except FileNotFoundError:
        return True
    end = time.monotonic() + LOOK_FOR
    for state in HASHED:
        for changed in _changes(str(queue.path / state), 3):
            if changed >= since:  # equal: the clock of files has coarse ticks
                return True
            if time.monotonic() > end:
                return False
    return False


def _changes(path: str, depth: int) -> Iterator[int]:
    """Give when a directory changed, and those in it, `depth` levels down."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield os.stat(path).st_ctime_ns
        if depth:
            for name in sorted(filter(str.isdigit, os.listdir(path)), reverse=True):
                yield from _changes(f"{path}/{name}", depth - 1)
