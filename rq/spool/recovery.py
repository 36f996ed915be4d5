"""Opening a queue: lock, read, fold once, act once.

Afterwards memory is complete and every event of recovery is durable; folders that are
still to be made go into the ordinary lag. A recovery that is cut short by a crash is
repeated by the next one, with the same end.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import secrets
import signal
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import orjson

from rq import durable, names, proc
from rq.causes import Cause
from rq.errors import BadConfig, BadMessage, NoSuchMessage, Refused
from rq.layout import MSG, QUEUE_DIRS, QueueDir
from rq.logs import fields
from rq.message import from_disk
from rq.spool import checkpoint, folders, history, index, outbox
from rq.spool.entry import COUNTED, Counts, Entry
from rq.spool.fold import Action, Fold, Folded, decide, fold
from rq.spool.journal import Journal, Position
from rq.spool.store import REBUILT, Owes, Spool, owes_nothing, status_file
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
    ghosts: list[proc.Found] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Found:
    """What lies on disk before anything is done about it."""

    last: Position
    start: int
    journal: str
    boot: str
    folded: Folded
    checkpoint: checkpoint.Checkpoint | None
    index: index.Index | None
    fresh: bool  # nothing was ever written here


def stopped_cleanly(queue: QueueDir) -> bool:
    """Return whether the folders alone tell everything: the queue was never started,
    or its last end was a clean stop."""
    point = checkpoint.read(queue)
    active = history.active_segments(queue)
    if point is None:
        return not active and not history.journals(queue)
    reads = [read for one in active if (read := history.read_segment(one)) is not None]
    return point.clean and not any(
        read.events and read.events[-1]["seq"] > point.seq for read in reads
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
    for name in QUEUE_DIRS:
        durable.make_dirs(str(queue.path / name))
    lock = proc.lock(queue.lock)
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
    found = _look(queue, clock())
    boot = proc.boot_id()
    prefix = lease_prefix(queue, found.journal)
    same_boot = found.boot == boot
    ghosts = _end_leases(queue, prefix, grace) if same_boot else []
    if found.fresh:
        _adopt_modes(queue)
    journal = Journal(
        queue, dir_fd, found.journal, found.start, found.last, boot, threads
    )
    durable.checkpoint("recovery:before-retire")
    history.seal_left(queue, dir_fd, found.journal, journal.segment)
    spool = Spool(queue, dir_fd, journal, {}, _counts(found), {}, {}, clock, threads)
    spool.owes = owes
    _remember(spool, found, clock())
    trusted = same_boot and not found.folded.suspect
    opened = Opened(spool, lock, prefix, _was_clean(found), trusted, ghosts)
    _act(opened, found, Cause.CRASH if same_boot else Cause.HOST)
    spool.commit()
    spool.empty_gone()
    if opened.clean:
        spool.renew_que()
    return opened


def lease_prefix(queue: QueueDir, journal: str) -> str:
    """Return what RQ_LEASE starts with for workers of this queue in this place."""
    place = zlib.crc32(os.fsencode(os.path.realpath(queue.path)))
    return f"{queue.name}/{journal}{place:08x}/"


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
    for name in QUEUE_DIRS:
        durable.allow(str(queue.path / name), durable.DIR_MODE)
    for state in COUNTED:
        for msg_id in folders.list_state(queue, state):
            path = str(queue.message(state, msg_id))
            durable.allow(path, durable.DIR_MODE)
            if os.path.isfile(f"{path}/{MSG}"):
                durable.allow(f"{path}/{MSG}", durable.FILE_MODE)


# ---- looking


def _look(queue: QueueDir, now: float) -> _Found:
    point = checkpoint.read(queue)
    known = index.read(queue)
    active = history.active_segments(queue)
    journal = history.journal_of(queue, active) or (point.journal if point else None)
    if known is not None and known.journal != journal:
        known = None
    after = point.seq if point else 0
    since = min(after, known.seq) if known else after
    reads = list(history.events_after(queue, since, journal)) if journal else []
    last, start, boot = _last(point, reads)
    events = [event for read in reads for event in read.events if event["seq"] > since]
    old = [event for event in events if event["seq"] <= after]
    new = [event for event in events if event["seq"] > after]
    _freshen(known, old)
    return _Found(
        last=last,
        start=max(start + 1, int(now)),
        journal=journal or secrets.token_hex(4),
        boot=boot,
        folded=fold(_once(new)),
        checkpoint=point,
        index=known,
        fresh=point is None and journal is None,
    )


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
        if "key" in record:
            known.keys[record["key"]] = (msg_id, record["ts"] / 1e6)


def _was_clean(found: _Found) -> bool:
    point = found.checkpoint
    return found.fresh or bool(point and point.clean and not found.folded.by_id)


# ---- processes of the owner before


def _end_leases(queue: QueueDir, prefix: str, grace: float) -> list[proc.Found]:
    """End every process that an earlier owner left; return those that do not end."""
    slots = [queue.path / "lease" / name for name in os.listdir(queue.path / "lease")]
    held = [slot for slot in slots if proc.is_locked(slot)]
    for one in proc.find_leases(prefix, held):
        _log.warning(
            "a process of an earlier owner is still at work; RQ ends it: %s",
            fields(pid=one.pid, msg_id=one.msg_id),
        )
        os.close(one.pidfd)
    return end_processes(prefix, held, grace)


def end_processes(
    prefix: str,
    slots: list[Any],
    grace: float,
    msg_id: str | None = None,
    patience: float = 5.0,
) -> list[proc.Found]:
    """TERM, wait, KILL all holders of a lease until none is left; return the immortal.

    Blocks; meant for starts and for threads. One look that finds nobody proves nothing:
    a process may have forked after the look began and ended before its turn came. So
    nobody has to be found twice in a row, with every slot free. With `msg_id` only
    those of that message are looked for.
    """
    deadline = time.monotonic() + grace
    told: set[int] = set()
    clear = 0
    while True:
        left = list(proc.find_leases(prefix, slots, msg_id))
        late = time.monotonic() > deadline
        for one in left:
            if late or one.pid not in told:
                proc.signal_found(one, signal.SIGKILL if late else signal.SIGTERM)
                told.add(one.pid)
        clear = 0 if left else clear + 1
        free = clear > 1 and not any(proc.is_locked(slot) for slot in slots)
        if free or time.monotonic() > deadline + patience:
            return left
        for one in left:
            os.close(one.pidfd)
        if clear != 1:
            time.sleep(0.02)


# ---- the journal's files


def _counts(found: _Found) -> Counts:
    """Return the counts of final states; the live ones are added as they are found."""
    counts = Counts()
    point = found.checkpoint
    for state in HASHED:
        if point is not None:
            counts.by_state[state] = point.counts.of(state)
            counts.by_state[state] += found.folded.deltas[state]
    return counts


def _remember(spool: Spool, found: _Found, now: float) -> None:
    keys = dict(found.index.keys) if found.index else _keys_of_history(spool.queue)
    keys.update(found.folded.keys)
    spool.keys = keys
    owed = dict(found.checkpoint.owed) if found.checkpoint else {}
    for seq, number, out, since in found.folded.owed:
        owed[seq, number] = outbox.owed(out, out["msg"], since)
    for sent in found.folded.sent:
        owed.pop(sent, None)
    spool.owed = owed


def _keys_of_history(queue: QueueDir) -> dict[str, tuple[str, float]]:
    keys: dict[str, tuple[str, float]] = {}
    for one in history.segments(queue):
        if (read := history.read_segment(one)) is not None:
            for record in read.events:
                if "key" in record:
                    keys[record["key"]] = (record["msg"], record["ts"] / 1e6)
    return keys


# ---- acting


def _act(opened: Opened, found: _Found, lost: Cause) -> None:
    spool = opened.spool
    places = _list_places(spool.queue)
    doors = {one.door: i for i, one in found.folded.by_id.items() if one.door}
    at_door = {doors[n]: n for n in os.listdir(spool.queue.path / "new") if n in doors}
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
        _commit_when_full(spool)
    for msg_id, at in places.items():
        if at is State.QUE:
            if not _known(spool, found, msg_id):
                unknown.append(msg_id)
        else:
            _believe(opened, msg_id, at, lost, ghosts, found)
            _commit_when_full(spool)
    _read_unknown(spool, unknown)
    if found.checkpoint is None:
        count_final(spool)


def count_final(spool: Spool) -> None:
    """Count what has ended by listing it: there is no checkpoint that tells."""
    for state in HASHED:
        there = set(folders.list_state(spool.queue, state))
        coming = {i for i, one in spool.unsettled.items() if one.state is state}
        leaving = {i for i, one in spool.unsettled.items() if one.at is state}
        spool.counts.by_state[state] = len((there | coming) - (leaving - coming))


def _commit_when_full(spool: Spool) -> None:
    if spool.journal.full:
        spool.commit()


def _list_places(queue: QueueDir) -> dict[str, State]:
    places: dict[str, State] = {}
    for state in (State.PREP, State.QUE, State.RUN, State.ERR):
        for name in os.listdir(queue.path / state):
            dotted = state is State.ERR and name.startswith(".")
            if names.is_msg_id(name.removeprefix(".") if dotted else name):
                real = State.DISMISSED if dotted else state
                places[name.removeprefix(".") if dotted else name] = real
    return places


def _known(spool: Spool, found: _Found, msg_id: str) -> bool:
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
        except OSError:
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
        fail_malformed(spool, msg_id, str(error))
        return
    entry.due, entry.count, entry.attempt = message.due, message.count, message.attempt
    entry.since = spool.clock()


def fail_malformed(spool: Spool, msg_id: str, reason: str) -> None:
    """que → err: the message cannot be used, and says why."""
    _log.error(
        "a message cannot be read; RQ moves it to err: %s",
        fields(msg_id=msg_id, reason=reason),
    )
    facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)


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
    if "dup" in one.record and entry.body is None and at is not None:
        _mark_rider(spool, msg_id, str(one.record["dup"]))
    if action is Action.RECOVER:
        entry.state = State.RUN
        spool.counts.moved(State.NOWHERE, State.RUN)
        _recover(opened, msg_id, one.event != Event.CLAIM, lost, ghosts)
        return
    entry.written = opened.trusted and at is one.state
    spool.unsettled[msg_id] = entry
    if one.state not in HASHED and one.state is not State.GONE:
        spool.counts.moved(State.NOWHERE, one.state)


def _mark_rider(spool: Spool, msg_id: str, leader: str) -> None:
    try:
        spool.entries[msg_id].body = spool.read(msg_id).with_(dup=leader).encode()
    except (BadMessage, NoSuchMessage) as error:
        _log.error("a rider cannot be read: %s", fields(msg_id=msg_id, reason=error))


def _entry_of(msg_id: str, one: Fold, at: State | None, door: str | None) -> Entry:
    record = one.record
    entry = Entry(
        one.state,
        at,
        float(record.get("due", (one.message or {}).get("due", 0.0))),
        one.seq,
        int(record.get("count", 0)),
        int(record.get("attempt", 0)),
        one.since,
    )
    if door is not None:
        entry.at, entry.at_new = None, door
    if one.message is not None:
        changed = {**one.message, "due": entry.due or one.message["due"]}
        if "dup" in record:
            changed["dup"] = record["dup"]
        if at is None and door is None:
            changed[REBUILT] = True
        entry.body = orjson.dumps(changed)
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
    found: _Found,
) -> None:
    """Take a folder of which the journal says nothing for what it is."""
    spool = opened.spool
    spool.counts.moved(State.NOWHERE, at)
    if at in FINAL:
        return
    entry = spool.entries[msg_id] = Entry(at, at, 0.0, 0, since=spool.clock())
    if at is not State.RUN:
        return
    known = found.index.known.get(msg_id) if found.index else None
    if known is not None:
        entry.due, entry.seq, entry.count, entry.attempt, entry.since, _ = known
    running = found.checkpoint.running.get(msg_id) if found.checkpoint else None
    if running is not None:
        entry.attempt = max(entry.attempt, running)
    _recover(opened, msg_id, running is None, lost, ghosts)


def _recover(
    opened: Opened, msg_id: str, unclaimed: bool, lost: Cause, ghosts: set[str]
) -> None:
    """run → que, counted; or err past the limit. A message whose process does not end
    stays in run, for the owner to wait for."""
    if msg_id in ghosts:
        return
    recover(opened.spool, msg_id, unclaimed, lost)


def recover(spool: Spool, msg_id: str, unclaimed: bool, lost: Cause) -> None:
    """Take back an attempt that was lost; `unclaimed` when its start is in no line."""
    entry = spool.entries[msg_id]
    try:
        message = spool.read(msg_id)
    except (BadMessage, NoSuchMessage) as error:
        fail_malformed(spool, msg_id, str(error))
        return
    count = max(message.count, entry.count) + 1
    attempt = max(message.attempt, entry.attempt) + (1 if unclaimed else 0)
    message = message.with_(count=count, attempt=attempt)
    over = count >= message.max_count
    facts: dict[str, Any] = {
        "cause": Cause.CRASH_LIMIT if over else lost,
        "outcome": "err" if over else "retry",
        "text": f"lost {count} times" if over else "the attempt was lost",
    }
    _log.warning(
        "an attempt was lost; %s: %s",
        "RQ moves the message to err" if over else "RQ runs the message again",
        fields(msg_id=msg_id, attempt=attempt, count=count, max=message.max_count),
    )
    event = Event.FAIL if over else Event.RECOVER
    more = spool.owing(message, facts) if over else {}
    spool.fire(msg_id, event, Role.QUEUE, message=message, facts=facts, **more)
