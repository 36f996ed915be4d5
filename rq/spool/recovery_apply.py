"""Acting on what was found: once for each message, by the table in `fold`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import orjson

from rq import names
from rq.causes import Cause
from rq.errors import BadMessage, NoSuchMessage, Unread, is_busy
from rq.layout import ATTACH, MSG, QueueDir
from rq.logs import fields
from rq.message import from_disk, to_keep
from rq.proc import processes
from rq.spool import batch_dirs, folders, manual_changes
from rq.spool import lost_attempts as losing
from rq.spool.entry import Entry
from rq.spool.fold import Action, Fold, decide
from rq.spool.mover import REBUILT
from rq.spool.recovery_scan import Found
from rq.spool.status import status_file
from rq.spool.store import Spool
from rq.states import FINAL, HASHED, Event, Role, State

_READERS = 16  # threads that read messages when there is no index
_log = logging.getLogger(__name__)


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
    ghosts: list[processes.Found] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    restored: str | None = None  # why nothing may happen before a person's word


def act(opened: Opened, found: Found, lost: Cause) -> None:
    spool = opened.spool
    places = _list_places(spool.queue, found.folded.by_id)
    doors = {one.door: i for i, one in found.folded.by_id.items() if one.door}
    at_door = {doors[n]: n for n in os.listdir(spool.queue.path / "new") if n in doors}
    running = _running(found, places)
    opened.ghosts = batch_dirs.with_theirs(opened.ghosts, opened.lease_prefix, running)
    ghosts = {one.msg_id for one in opened.ghosts}
    unknown: list[str] = []
    # Prepared order: first what the fold says, then the folders it says nothing of.
    for msg_id, one in found.folded.by_id.items():
        at = places.pop(msg_id, None)
        if at is None and msg_id in at_door:
            at = State.NOWHERE
        if at is None:
            at = folders.find_final(spool.dir_fd, msg_id)
        _act_on(opened, msg_id, one, at, at_door.get(msg_id), lost, ghosts)
        one.message, one.record, one.ending = None, {}, None  # memory for the next
        _commit_when_full(spool)
    for msg_id, at in places.items():
        if at is State.QUE:
            if not _known(spool, found, msg_id):
                unknown.append(msg_id)
        else:
            _believe(opened, msg_id, at, lost, ghosts, found)
            _commit_when_full(spool)
    _read_unknown(spool, unknown)
    if found.checkpoint is None or (
        opened.clean and manual_changes.has_changed(spool.queue)
    ):
        count_final(spool)


def _running(found: Found, places: Mapping[str, State]) -> dict[str, int | None]:
    """Return the messages that were in run, with the slot where their claim tells it."""
    known = found.folded.by_id
    slots: dict[str, int | None] = {
        msg_id: one.record.get("slot")
        for msg_id, one in known.items()
        if one.state is State.RUN
    }
    alone = (i for i, at in places.items() if at is State.RUN and i not in known)
    return {**dict.fromkeys(alone), **slots}


def count_final(spool: Spool) -> None:
    """Count what has ended by listing it: no checkpoint tells, or none that is true."""
    for state in HASHED:
        there = set(folders.list_state(spool.queue, state))
        coming = {i for i, one in spool.unsettled.items() if one.state is state}
        leaving = {i for i, one in spool.unsettled.items() if one.at is state}
        spool.counts.by_state[state] = len((there | coming) - (leaving - coming))


def _commit_when_full(spool: Spool) -> None:
    if spool.journal.full:
        spool.commit()


def _list_places(queue: QueueDir, known: Mapping[str, Fold]) -> dict[str, State]:
    places: dict[str, State] = {}
    for state in (State.PREP, State.QUE, State.RUN, State.ERR):
        for name in os.listdir(queue.path / state):
            dotted = state is State.ERR and name.startswith(".")
            msg_id = name.removeprefix(".") if dotted else name
            if not names.is_msg_id(msg_id):
                continue
            at = State.DISMISSED if dotted else state
            if msg_id in places:
                at = _truer(queue, msg_id, (at, places[msg_id]), known.get(msg_id))
            places[msg_id] = at
    return places


def _truer(
    queue: QueueDir, msg_id: str, both: tuple[State, State], said: Fold | None
) -> State:
    """Return in which of two places lies the message, and not what a hand has made: the
    other goes when it is in the way."""
    whole = [at for at in both if _is_whole(queue, at, msg_id)] or both
    told = [at for at in whole if said is not None and at is said.state]
    return (told or whole)[0]


def _is_whole(queue: QueueDir, at: State, msg_id: str) -> bool:
    try:
        message = folders.read_message(queue, at, msg_id)
        return all(
            os.lstat(queue.message(at, msg_id) / ATTACH / name).st_size == one.size
            for name, one in message.attachments.items()
        )
    except Unread:
        raise
    except (BadMessage, NoSuchMessage, FileNotFoundError, NotADirectoryError):
        return False


def _known(spool: Spool, found: Found, msg_id: str) -> bool:
    """Take a message in que from the index; return whether it is in there."""
    known = found.index.known.get(msg_id) if found.index else None
    if known is None:
        return False
    due, seq, count, attempt, since, key = known
    spool.entries[msg_id] = Entry(
        State.QUE, State.QUE, due, seq, count, attempt, since, key
    )
    spool.counts.moved(State.NOWHERE, State.QUE)
    return True


def _read_unknown(spool: Spool, ids: list[str]) -> None:
    """Read messages in que that no index knows; the malformed go to err."""
    if not ids:
        return
    ids.sort()
    with ThreadPoolExecutor(_READERS) as readers:
        for msg_id, data in zip(ids, readers.map(_reader(spool), ids), strict=True):
            _enter(spool, msg_id, data)
            _commit_when_full(spool)


def _reader(spool: Spool) -> Callable[[str], bytes | None]:
    dir_fd = spool.dir_fd

    def read(msg_id: str) -> bytes | None:
        try:
            return folders.read_file(f"que/{msg_id}/msg", dir_fd)
        except OSError as error:
            if is_busy(error):  # of the message nothing is known: start again later
                raise
            return None

    return read


def _enter(spool: Spool, msg_id: str, data: bytes | None) -> None:
    entry = spool.entries[msg_id] = Entry(State.QUE, State.QUE, 0.0, 0)
    spool.counts.moved(State.NOWHERE, State.QUE)
    try:
        if data is None:
            raise BadMessage("msg is missing")
        message = from_disk(data, msg_id, spool.clock())
    except BadMessage as error:
        losing.fail_malformed(spool, msg_id, str(error))
        return
    entry.due, entry.count, entry.attempt = message.due, message.count, message.attempt
    entry.since = spool.clock()


def _act_on(
    opened: Opened,
    msg_id: str,
    one: Fold,
    at: State | None,
    door: str | None,
    lost: Cause,
    ghosts: set[str],
) -> None:
    spool = opened.spool
    action = decide(one, at)
    if action is Action.REPORT:
        text = f"message {msg_id} ({one.state}): nothing is left of its folder"
        opened.reports.append(text)
        _log.error("%s; it was removed by hand or the disk lost it", text)
        _observe_gone(spool, msg_id, one)
        return
    if action is Action.FORGET:
        return
    if action is Action.OBSERVE and at is not None:
        _observe(spool, msg_id, one, at)
        return
    entry = _entry_of(msg_id, one, at, door)
    spool.entries[msg_id] = entry
    if one.state is State.QUE and one.message is None and "due" not in one.record:
        _read_due(spool, msg_id, entry)
    if "dup" in one.record and entry.body is None and at is not None:
        _mark_rider(spool, msg_id, str(one.record["dup"]))
    if action is Action.RECOVER:
        entry.state = State.RUN
        spool.counts.moved(State.NOWHERE, State.RUN)
        _recover(opened, msg_id, one.event != Event.CLAIM, lost, ghosts)
        return
    entry.written = opened.trusted and at is one.state
    spool.lagging.add(msg_id, entry)
    if one.state not in HASHED and one.state is not State.GONE:
        spool.counts.moved(State.NOWHERE, one.state)


def _read_due(spool: Spool, msg_id: str, entry: Entry) -> None:
    """The line of a transaction says who is in que, and no more."""
    try:
        found = spool.read(msg_id)
    except Unread:
        raise
    except (BadMessage, NoSuchMessage):
        return  # its claim moves it to err
    entry.due, entry.count, entry.attempt = found.due, found.count, found.attempt


def _mark_rider(spool: Spool, msg_id: str, leader: str) -> None:
    try:
        spool.entries[msg_id].body = spool.read(msg_id).with_(dup=leader).encode()
    except Unread:
        raise
    except (BadMessage, NoSuchMessage) as error:
        _log.error("a rider cannot be read: %s", fields(msg_id=msg_id, reason=error))


def _entry_of(msg_id: str, one: Fold, at: State | None, door: str | None) -> Entry:
    record = one.record
    message = orjson.loads(one.message) if one.message else {}
    told = {**message, **record}  # a transaction's line tells no numbers
    entry = Entry(
        one.state,
        at,
        float(told.get("due", 0.0)),
        one.seq,
        int(told.get("count", 0)),
        int(told.get("attempt", 0)),
        one.since,
    )
    if door is not None:
        entry.at, entry.at_new = None, door
    if message:
        changed = {**message, "due": entry.due or message["due"]}
        if "dup" in record:
            changed["dup"] = record["dup"]
        if at is None and door is None:
            changed[REBUILT] = True
        entry.body = to_keep(changed)
    if one.ending is not None:
        entry.status = status_file(one.ending)
    return entry


def _observe(spool: Spool, msg_id: str, one: Fold, at: State) -> None:
    """Believe a hand that has moved a folder, and write it down."""
    _log.warning(
        "a folder was moved by hand; RQ believes it: %s",
        fields(msg_id=msg_id, journal=one.state, folder=at),
    )
    _note_observed(spool, msg_id, one.state, at)
    if one.state in HASHED:
        spool.counts.moved(one.state, State.GONE)
    spool.counts.moved(State.NOWHERE, at)


def _observe_gone(spool: Spool, msg_id: str, one: Fold) -> None:
    _note_observed(spool, msg_id, one.state, State.GONE)
    if one.state in HASHED:
        spool.counts.moved(one.state, State.GONE)


def _note_observed(spool: Spool, msg_id: str, was: State, state: State) -> None:
    spool.journal.append(
        {
            "ts": int(spool.clock() * 1e6),
            "queue": spool.queue.name,
            "msg": msg_id,
            "ev": Event.OBSERVE,
            "state": state,
            "was": was,
            "count": 0,
            "attempt": 0,
        }
    )


def _believe(
    opened: Opened,
    msg_id: str,
    at: State,
    lost: Cause,
    ghosts: set[str],
    found: Found,
) -> None:
    """Take a folder of which the journal says nothing for what it is."""
    spool = opened.spool
    spool.counts.moved(State.NOWHERE, at)
    if at in FINAL:
        return
    entry = spool.entries[msg_id] = Entry(at, at, 0.0, 0, since=spool.clock())
    if at is State.PREP and spool.txns.of(msg_id):
        _read_due(spool, msg_id, entry)  # its commit will not
    elif at is State.PREP and not opened.clean and _is_half_made(spool, msg_id):
        _log.warning(
            "a message was half prepared when its queue died, so nobody can commit it; "
            "RQ removes it: %s",
            fields(msg_id=msg_id),
        )
        spool.fire(msg_id, Event.EXPIRE, Role.QUEUE)
    if at is not State.RUN:
        return
    known = found.index.known.get(msg_id) if found.index else None
    if known is not None:
        entry.due, entry.seq, entry.count, entry.attempt, entry.since, _ = known
    running = found.checkpoint.running.get(msg_id) if found.checkpoint else None
    if running is not None:
        entry.attempt = max(entry.attempt, running)
    _recover(opened, msg_id, running is None, lost, ghosts)


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


def _recover(
    opened: Opened, msg_id: str, unclaimed: bool, lost: Cause, ghosts: set[str]
) -> None:
    """run → que, counted; or err past the limit. A message whose process does not end
    stays in run, for the owner to wait for."""
    if msg_id in ghosts:
        return
    losing.recover(opened.spool, msg_id, unclaimed, lost)
