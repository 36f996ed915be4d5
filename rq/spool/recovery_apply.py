"""Recovery, message by message: each is acted on once, by the table in `fold`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import orjson

from rq.errors import BadMessage, NoSuchMessage, Unread, is_busy
from rq.layout import MSG
from rq.logs import fields
from rq.message.causes import Cause
from rq.message.fields import JsonObject, priority_in
from rq.message.message import from_disk, to_keep
from rq.message.rank import UNREAD, prior
from rq.message.table import REBUILT
from rq.proc import processes
from rq.spool import after_list, batch_dirs, folders, lost_attempts
from rq.spool.entry import Entry
from rq.spool.fold import Action, Fold, decide
from rq.spool.index import Index
from rq.spool.leases import Held, held_in
from rq.spool.record import Record
from rq.spool.recovery_scan import Scan, ended_have_changed, list_places
from rq.spool.status import status_file
from rq.spool.store import Spool
from rq.words.states import FINAL, HASHED, Event, Role, State

_log = logging.getLogger(__name__)
_READERS = 16  # threads


# Seconds for which the time last seen on disk may stay behind: days behind, a start would
# take the clock to be wrong.
_FRESH = 6 * 3600.0


@dataclass(slots=True)
class Opened:
    """A queue that is ready, with what its opening found."""

    spool: Spool
    lock: int  # descriptor of the owner lock
    lease_prefix: str
    clean: bool  # the end before was a clean stop
    trusted: bool = (
        True  # files that were written are there: no power cut, no disk error
    )
    left_processes: list[processes.Holder] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    restored: str | None = None  # why a person must decide first
    seq: int = 0  # of the last event when it was ready
    seen: float = 0.0  # and the last time that was believed

    @property
    def is_as_found(self) -> bool:
        """Whether nothing has happened since a clean stop, which still says all."""
        is_fresh = self.spool.seen - self.seen < _FRESH
        is_same = self.spool.last_seq == self.seq > 0
        return self.clean and self.trusted and is_same and is_fresh


def apply(opened: Opened, scan: Scan, lost: Cause) -> None:
    """Bring memory, and the lag of folders, to what the journal says; `lost` is why
    attempts were lost."""
    spool, folds = opened.spool, scan.folded.by_id
    places = list_places(spool.queue, folds)
    running = _running(folds, places, scan.leases)
    opened.left_processes = batch_dirs.with_theirs(
        opened.left_processes, opened.lease_prefix, running
    )
    recovery = _Recovery(opened, scan, lost)
    # First the messages that the journal tells of, then the folders of all others.
    recovery.apply_folds(places)
    recovery.take_others(places)
    changed = opened.clean and ended_have_changed(spool.queue)
    if scan.checkpoint is None or changed:
        count_final(spool)


def _running(
    folds: Mapping[str, Fold],
    places: Mapping[str, State],
    leases: Mapping[str, Held],
) -> dict[str, int | None]:
    """Return the messages that were in run, with the slot where their claim tells it;
    no process of ours runs for one that was leased."""
    slots: dict[str, int | None] = {
        msg_id: fold.record.get("slot")
        for msg_id, fold in folds.items()
        if fold.state is State.RUN and "lease" not in fold.record
    }
    others = folds.keys() | leases.keys()
    alone = (i for i, at in places.items() if at is State.RUN and i not in others)
    return {**dict.fromkeys(alone), **slots}


def count_final(spool: Spool) -> None:
    """Count what has ended by listing it: no checkpoint tells, or none that is true."""
    for state in HASHED:
        there = set(folders.list_state(spool.queue, state))
        coming = {i for i, entry in spool.unsettled.items() if entry.state is state}
        leaving = {i for i, entry in spool.unsettled.items() if entry.at is state}
        spool.counts.by_state[state] = len((there | coming) - (leaving - coming))


class _Recovery:
    """Acts on one message after the other."""

    def __init__(self, opened: Opened, scan: Scan, lost: Cause) -> None:
        self._opened = opened
        self._spool = opened.spool
        self._scan = scan
        self._lost = lost_attempts.Lost(lost)
        # Their processes do not end: the messages stay in run, for the owner to wait for.
        self._stay = {process.msg_id for process in opened.left_processes}

    def apply_folds(self, places: dict[str, State]) -> None:
        """Act on each message of which the journal tells; take it out of `places`."""
        folds = self._scan.folded.by_id
        at_door = self._at_door(folds)
        for msg_id, fold in folds.items():
            at = places.pop(msg_id, None)
            door = at_door.get(msg_id)
            if at is None and door is not None:
                at = State.NOWHERE
            if at is None:
                at = folders.find_final(self._spool.dir_fd, msg_id)
            self._apply(msg_id, fold, at, door)
            # There may be a million folds: free what this one holds.
            fold.message, fold.record, fold.attempt_line = None, {}, None
            self._spool.commit_when_full()

    def _at_door(self, folds: Mapping[str, Fold]) -> dict[str, str]:
        """Return the names in new/ of messages that were accepted there."""
        doors = {fold.door: msg_id for msg_id, fold in folds.items() if fold.door}
        listed = os.listdir(self._spool.queue.path / "new")
        return {doors[name]: name for name in listed if name in doors}

    def take_others(self, places: dict[str, State]) -> None:
        """Take the messages of which the journal says nothing."""
        spool, unknown = self._spool, []
        if self._scan.index is not None:
            _take_from_index(spool, self._scan.index, places)
        for msg_id, at in places.items():
            if at is State.QUE:
                unknown.append(msg_id)
            else:
                self._believe(msg_id, at)
                spool.commit_when_full()
        _read_waiting(spool, unknown)

    # ---- what the journal tells of

    def _apply(
        self, msg_id: str, fold: Fold, at: State | None, door: str | None
    ) -> None:
        match decide(fold, at):
            case Action.FORGET:
                return
            case Action.REPORT:
                self._report_gone(msg_id, fold)
            case Action.OBSERVE if at is not None:
                self._observe(msg_id, fold, at)
            case Action.HOLD:
                self._enter_settling(msg_id, fold, at, door)
                self._hold(msg_id, held_in(fold.record), fold.record["seq"])
            case Action.RECOVER:
                entry = self._enter(msg_id, fold, at, door)
                entry.state = State.RUN
                self._spool.counts.moved(State.NOWHERE, State.RUN)
                self._recover(msg_id, fold.event != Event.CLAIM, _claimed_at(fold))
            case _:
                self._enter_settling(msg_id, fold, at, door)

    def _enter_settling(
        self, msg_id: str, fold: Fold, at: State | None, door: str | None
    ) -> None:
        """As `_enter`; its folder is brought to where the journal says."""
        entry = self._enter(msg_id, fold, at, door)
        entry.written = self._opened.trusted and at is fold.state
        self._spool.lagging.add(msg_id, entry)
        if fold.state not in HASHED and fold.state is not State.GONE:
            self._spool.counts.moved(State.NOWHERE, fold.state)

    def _hold(self, msg_id: str, held: Held | None, seq: int) -> None:
        """Go on with a lease that was out; `seq`: the last event that it knows of."""
        if held is None:
            return
        renewed = self._scan.folded.lease_news.tell(held, seq)
        if renewed or not self._opened.clean:  # else what a clean stop has saved holds
            held.left = held.bounded(self._spool.clock())
        self._spool.leases[msg_id] = held

    def _enter(
        self, msg_id: str, fold: Fold, at: State | None, door: str | None
    ) -> Entry:
        """Remember a message as the journal tells of it."""
        spool = self._spool
        entry = spool.entries[msg_id] = _entry_of(msg_id, fold, at, door, spool.dir_fd)
        if fold.message is None and self._scan.index:
            entry.after = self._scan.index.waits.get(msg_id)
        if not entry.seq:  # its only line since the checkpoint is no arrival
            self._keep_place(msg_id, entry)
        if (
            fold.state is State.QUE
            and fold.message is None
            and "due" not in fold.record
        ):
            read_due(spool, msg_id, entry)
        if "dup" in fold.record and entry.body is None and at is not None:
            self._mark_rider(msg_id, str(fold.record["dup"]))
        return entry

    def _keep_place(self, msg_id: str, entry: Entry) -> None:
        """Keep the place of a message in que."""
        index = self._scan.index
        indexed = index.entries.get(msg_id) if index else None
        if indexed is not None:
            entry.seq, entry.since = indexed.seq, indexed.since

    def _mark_rider(self, msg_id: str, leader: str) -> None:
        spool = self._spool
        try:
            spool.entries[msg_id].body = spool.read(msg_id).with_(dup=leader).encode()
        except Unread:
            raise
        except (BadMessage, NoSuchMessage) as error:
            about = fields(msg_id=msg_id, reason=error)
            _log.error("a coalesced message cannot be read: %s", about)

    def _report_gone(self, msg_id: str, fold: Fold) -> None:
        text = f"message {msg_id} ({fold.state}): nothing is left of its folder"
        self._opened.reports.append(text)
        _log.error("%s; it was removed by hand or the disk lost it", text)
        self._note_observed(msg_id, fold.state, State.GONE)

    def _observe(self, msg_id: str, fold: Fold, at: State) -> None:
        """Believe a hand that has moved a folder, and write it down."""
        _log.warning(
            "a folder was moved by hand; RQ takes its new place as its state: %s",
            fields(msg_id=msg_id, journal=fold.state, folder=at),
        )
        self._note_observed(msg_id, fold.state, at)
        self._spool.counts.moved(State.NOWHERE, at)

    def _note_observed(self, msg_id: str, was: State, state: State) -> None:
        spool = self._spool
        record: Record = {
            "ts": int(spool.clock() * 1e6),
            "queue": spool.queue.name,
            "msg": msg_id,
            "ev": Event.OBSERVE,
            "state": state,
            "was": was,
            "count": 0,
            "attempt": 0,
        }
        spool.journal.append(record)
        if was in HASHED:
            spool.counts.moved(was, State.GONE)

    # ---- folders of which the journal says nothing

    def _believe(self, msg_id: str, at: State) -> None:
        """Take a folder of which the journal says nothing for what it is."""
        spool = self._spool
        spool.counts.moved(State.NOWHERE, at)
        if at in FINAL:
            return
        entry = spool.entries[msg_id] = Entry(at, at, 0.0, 0, since=spool.clock())
        if at is State.RUN:
            self._recover_unclaimed(msg_id, entry)
        elif spool.txns.of(msg_id):
            read_due(spool, msg_id, entry)  # its commit will not
        elif not self._opened.clean and _is_half_made(spool, msg_id):
            _log.warning(
                "a message was half prepared when its queue died, so nobody can commit "
                "it; RQ removes it: %s",
                fields(msg_id=msg_id),
            )
            spool.fire(msg_id, Event.EXPIRE, Role.QUEUE)

    def _recover_unclaimed(self, msg_id: str, entry: Entry) -> None:
        """Recover a message in run whose claim is in no line after the checkpoint, unless
        it is leased."""
        index, point = self._scan.index, self._scan.checkpoint
        indexed = index.entries.get(msg_id) if index else None
        if indexed is not None:
            entry.due, entry.seq, entry.since = indexed.due, indexed.seq, indexed.since
            entry.count, entry.attempt = indexed.count, indexed.attempt
            entry.rank = indexed.rank
            entry.unique = index.uniques.get(msg_id) if index else None
        held = self._scan.leases.get(msg_id)
        if held is not None:
            if indexed is None:
                read_due(self._spool, msg_id, entry)
            entry.attempt = max(entry.attempt, held.attempt)
            self._hold(msg_id, held, point.seq if point else 0)
            return
        attempt = point.running.get(msg_id) if point else None
        if attempt is not None:
            entry.attempt = max(entry.attempt, attempt)
        self._recover(msg_id, attempt is None)

    def _recover(
        self, msg_id: str, unclaimed: bool, started: float | None = None
    ) -> None:
        """run → que, counted; or err past the limit."""
        if msg_id not in self._stay:
            lost = replace(self._lost, started=started)
            lost_attempts.recover(self._spool, msg_id, unclaimed, lost)


def _claimed_at(fold: Fold) -> float | None:
    """Return when an attempt was claimed that was lost; None: that is not known."""
    line = fold.record
    return line["ts"] / 1e6 if line["ev"] == Event.CLAIM else None


def read_due(spool: Spool, msg_id: str, entry: Entry) -> None:
    """Read what the line of a transaction does not tell: it says who is in que, and no
    more."""
    try:
        message = spool.read(msg_id)
    except Unread:
        raise
    except (BadMessage, NoSuchMessage):
        return  # its claim moves it to err
    entry.due, entry.count, entry.attempt = message.due, message.count, message.attempt
    entry.rank = prior(message.priority, UNREAD)
    entry.held, entry.after = message.held is not None, message.wait


def _entry_of(
    msg_id: str, fold: Fold, at: State | None, door: str | None, dir_fd: int
) -> Entry:
    record = fold.record
    message = orjson.loads(fold.message) if fold.message else {}
    # A transaction's line tells no numbers.
    entry = Entry(
        fold.state,
        at,
        float(record.get("due", message.get("due", 0.0))),
        fold.seq,
        int(record.get("count", message.get("count", 0))),
        int(record.get("attempt", message.get("attempt", 0))),
        fold.since,
        rank=prior(priority_in(record if "priority" in record else message), UNREAD),
    )
    if door is not None:
        entry.at, entry.at_new = None, door
    if message:
        if held := message.get("held"):
            entry.held = bool(held)
        entry.body = _body_of(fold, message, entry.due, at is None and door is None)
        entry.after = after_list.wait_of(message, entry.place(msg_id), dir_fd)
    if "results" in record:
        entry.results = record["attempt"], tuple(record["results"])
    if fold.attempt_line is not None:
        entry.status = status_file(fold.attempt_line)
        entry.attempts = fold.attempts
    return entry


def _body_of(fold: Fold, message: JsonObject, due: float, is_rebuilt: bool) -> bytes:
    """Return what belongs into the file of a message, which most have told as it is."""
    text, record = fold.message, fold.record
    if text and message.get("due") == due and not is_rebuilt and "dup" not in record:
        return text
    changed = {**message, "due": due or message["due"]}
    if "dup" in record:
        changed["dup"] = record["dup"]
    if is_rebuilt:
        changed[REBUILT] = True
    return to_keep(changed)


def _is_half_made(spool: Spool, msg_id: str) -> bool:
    """Whether a crash has cut the making of a folder in prep. A person may leave one
    like that, too, but only where the end before was clean; of what cannot be read for
    other reasons nothing is known."""
    try:
        orjson.loads(folders.read_file(f"{State.PREP}/{msg_id}/{MSG}", spool.dir_fd))
    except (FileNotFoundError, orjson.JSONDecodeError):
        return True
    except OSError:
        return False
    return False


# ---- messages in que of which no line tells


def _take_from_index(spool: Spool, index: Index, places: dict[str, State]) -> None:
    """Take the messages in que that the index tells of, as they came, out of `places`."""
    for msg_id, entry in index.entries.items():
        if places.get(msg_id) is State.QUE:
            del places[msg_id]
            entry.hold_back(msg_id in index.held, index.waits.get(msg_id))
            if (unique := index.uniques.get(msg_id)) is not None:
                entry.unique = unique
            spool.entries[msg_id] = entry
            spool.counts.moved(State.NOWHERE, State.QUE)


def _read_waiting(spool: Spool, ids: list[str]) -> None:
    """Take messages from their files, in the order of their ids; the malformed go to
    err."""
    if not ids:
        return
    ids.sort()
    with ThreadPoolExecutor(_READERS) as readers:
        for msg_id, data in zip(
            ids, readers.map(_waiting_reader(spool), ids), strict=True
        ):
            _enter_waiting(spool, msg_id, data)
            spool.commit_when_full()


def _waiting_reader(spool: Spool) -> Callable[[str], bytes | None]:
    dir_fd = spool.dir_fd

    def read(msg_id: str) -> bytes | None:
        try:
            return folders.read_file(f"que/{msg_id}/msg", dir_fd)
        except OSError as error:
            if is_busy(error):  # of the message nothing is known: start again later
                raise
            return None

    return read


def _enter_waiting(spool: Spool, msg_id: str, data: bytes | None) -> None:
    entry = spool.entries[msg_id] = Entry(State.QUE, State.QUE, 0.0, 0)
    spool.counts.moved(State.NOWHERE, State.QUE)
    try:
        if data is None:
            raise BadMessage("msg is missing")
        message = from_disk(data, msg_id, spool.clock())
        message = after_list.whole(message, f"que/{msg_id}", spool.dir_fd)
    except BadMessage as error:
        lost_attempts.fail_malformed(spool, msg_id, str(error))
        return
    entry.due, entry.count, entry.attempt = message.due, message.count, message.attempt
    entry.rank = prior(message.priority, UNREAD)
    entry.since, entry.held = spool.clock(), message.held is not None
    entry.after = message.wait
