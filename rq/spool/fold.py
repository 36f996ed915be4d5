"""Folds the lines of the journal to the last that is said of each message.

`decide` is the table of what recovery does with it. It is pure: if a crash cuts a
recovery short, the next one comes to the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from rq.journal.line import Line
from rq.message.message import to_keep
from rq.spool import attempt_files, outbox
from rq.spool.leases import LeaseNews
from rq.spool.record import OutEntry, Record, rider_record
from rq.spool.status import status_file
from rq.words.states import FINAL, HASHED, Event, Note, State


class Action(StrEnum):
    """What recovery does with a message."""

    KEEP = "keep"  # believe the folder
    SETTLE = "settle"  # bring the folder to where the journal says
    MAKE = "make"  # the folder is nowhere: make it from the line
    RECOVER = "recover"  # the attempt was lost: back to que, counted
    HOLD = "hold"  # it is leased: it stays in run
    OBSERVE = "observe"  # a person has moved the folder: believe it, write that down
    REPORT = "report"  # nothing is left of it: say so
    FORGET = "forget"  # nothing is left to do


def pack(line: Line) -> None:
    """Turn the message in an event into JSON, which takes a fifth of the memory."""
    record = cast("Record", line)
    if "message" in record:
        record["message"] = to_keep(record["message"])


@dataclass(slots=True)
class Fold:
    """The last that the journal says of one message."""

    state: State
    event: str
    record: Record
    message: bytes | None = None  # its JSON
    attempt_line: Record | None = None  # the last line with the facts of an attempt
    attempts: dict[int, bytes] | None = None  # that have ended: their files
    requeued: bool = False  # it came back from err within the fold
    door: str | None = None  # its name under new/
    since: float = 0.0
    seq: int = 0


@dataclass(slots=True)
class Folded:
    """The fold of all events after a checkpoint."""

    by_id: dict[str, Fold]
    deltas: dict[State, int]  # of done and relayed
    owed: list[tuple[int, int, OutEntry, float]]
    sent: set[tuple[int, int]]
    stopped: bool = False  # the last line is that of a clean stop
    # By transaction: messages of a decision that no line of their own tells of.
    untold: dict[str, dict[str, None]] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)  # decisions whose ids lie in a file
    suspect: bool = False  # a sync failed: no file since the checkpoint can be trusted
    again: dict[tuple[int, int], float] = field(default_factory=dict)  # owed: since
    lease_news: LeaseNews = field(default_factory=LeaseNews)
    # How messages stand for which others wait.
    standings: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # where messages go on


def fold(events: Iterable[Record]) -> Folded:
    """Fold events in their order."""
    folded = Folded({}, dict.fromkeys(HASHED, 0), [], set())
    for record in events:
        folded.stopped = record["ev"] == Note.STOPPED
        folded.suspect = folded.suspect or record["ev"] == Note.SUSPECT
        if "msg" in record and "state" in record:
            _take(folded, record)
        elif "msgs" in record:
            untold = folded.untold.get(record.get("txn", ""), {})
            for msg_id in record["msgs"]:
                _take(folded, {**record, "msg": msg_id})
                untold.pop(msg_id, None)
        else:
            _take_note(folded, record)
    return folded


def _take_note(folded: Folded, record: Record) -> None:
    folded.lease_news.take(record)
    if record["ev"] == Note.TXN:
        _take_decision(folded, record)
    elif record["ev"] == Note.SENT:
        folded.sent.add((record["of"], record["i"]))
    elif record["ev"] == Note.AGAIN:
        folded.again[record["of"], record["i"]] = record["ts"] / 1e6
    elif record["ev"] == Note.NEWS:
        _take_owed(folded, record)
    elif record["ev"] == Note.GOES_ON:
        folded.places[record["msg"]] = record["place"]
    elif record["ev"] == Note.STANDS:
        folded.standings.update((place, said) for place, said in record["standings"])


def _take(folded: Folded, record: Record) -> None:
    msg_id, state = record["msg"], State(record["state"])
    last = folded.by_id.get(msg_id)
    if last is None:
        last = folded.by_id[msg_id] = Fold(state, record["ev"], record)
    if record["ev"] != Event.RESCHEDULE:  # it does not tell where the folder may lie
        last.event = record["ev"]
    last.state, last.record = state, record
    if "message" in record:
        last.message = cast("bytes", record["message"])  # packed
    if "cause" in record:
        last.attempt_line = record
        if (ended := attempt_files.number_of(record)) is not None:
            status = status_file(record)
            last.attempts = attempt_files.add(last.attempts, ended, status)
    if record["ev"] == Event.REQUEUE and record["was"] in FINAL:
        last.requeued = True
        folded.places.pop(msg_id, None)
    last.door = record.get("from", last.door)
    if state is State.QUE and record["ev"] != Event.RESCHEDULE:
        last.seq, last.since = record["seq"], record["ts"] / 1e6
    _count(folded, State(record["was"]), state)
    _take_others(folded, record)


def _take_decision(folded: Folded, record: Record) -> None:
    """Put the messages that a transaction has committed into que; lines that say so of
    each may follow, or a crash may have come before them."""
    commit = record.copy()
    ids = commit.pop("ids", [])
    commit.update({"ev": Event.COMMIT, "state": State.QUE, "was": State.PREP})
    for msg_id in ids:
        _take(folded, {**commit, "msg": msg_id})
    folded.untold[record["txn"]] = dict.fromkeys(ids)
    if record.get("manifest"):
        folded.listed.add(record["txn"])


def _take_others(folded: Folded, record: Record) -> None:
    """Take what a line says beside its own message: what it owes, riders."""
    _take_owed(folded, record)
    for rider in record.get("riders", ()):
        _take(folded, rider_record(record, rider))


def _take_owed(folded: Folded, record: Record) -> None:
    when = record["ts"] / 1e6
    for number, out in enumerate(outbox.unpacked(record.get("out", ()))):
        entry: OutEntry = {**out, "msg": record.get("msg", "")}
        folded.owed.append((record["seq"], number, entry, when))


def _count(folded: Folded, was: State, state: State) -> None:
    if was in HASHED:
        folded.deltas[was] -= 1
    if state in HASHED:
        folded.deltas[state] += 1


_UNSTARTED = frozenset({Event.COMMIT, Event.RESCHEDULE})


def decide(last: Fold | None, at: State | None) -> Action:
    """Return what to do with a message of which the journal says `last` and whose folder
    lies in `at` (NOWHERE: in the door new/; None: nowhere)."""
    if last is None:
        return Action.RECOVER if at is State.RUN else Action.KEEP
    if last.state is State.GONE:
        return Action.FORGET if at is None else Action.SETTLE
    if last.state in FINAL:
        return _decide_final(last, at)
    came_back = at in (State.ERR, State.DISMISSED) and last.requeued
    if at in FINAL and not came_back:
        return Action.OBSERVE
    return _decide_live(last, at)


def _decide_live(last: Fold, at: State | None) -> Action:
    if at is None and not last.message:
        return Action.REPORT
    if last.state is State.RUN and "lease" in last.record:
        return Action.HOLD
    if last.state is State.RUN or (at is State.RUN and last.event in _UNSTARTED):
        return Action.RECOVER
    return Action.MAKE if at is None else Action.SETTLE


def _decide_final(last: Fold, at: State | None) -> Action:
    if at is None:
        return Action.MAKE if last.message else Action.REPORT
    if at is last.state or at not in FINAL:
        return Action.SETTLE
    if at is State.ERR and last.state is State.DISMISSED:
        return Action.SETTLE
    if at is State.DISMISSED and last.event == Event.REOPEN:
        return Action.SETTLE
    if at in (State.ERR, State.DISMISSED) and last.event == Event.MOVE:
        return Action.SETTLE
    if at in (State.ERR, State.DISMISSED) and last.requeued:
        return Action.SETTLE  # it ended again, and its folder has not left err
    return Action.OBSERVE
