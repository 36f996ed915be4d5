"""Deciding transactions: opened, committed whole, aborted; the rules of each step.

Ensures: a decision is written before anything that follows from it, and its messages
leave prep in the same turn; after a crash `finish_all` makes up for what is missing.
"""

from __future__ import annotations

import contextlib

from rq.errors import WrongState
from rq.spool import transactions
from rq.spool.fold import Folded
from rq.spool.store import Spool
from rq.spool.transactions import Standing, Transaction
from rq.states import Event, Note, State

MOST = 40_000  # messages of a transaction


def open_one(spool: Spool, key: str | None, ttl: float) -> Transaction:
    """Open a transaction, or return the one that was opened with this key."""
    known = spool.txns.with_key(key) if key is not None else None
    if known is not None:
        return known
    named = {} if key is None else {"name": key}
    txn_id = spool.new_id()
    line = spool.note(Note.TXN, txn=txn_id, **{"is": Standing.OPEN}, ttl=ttl, **named)
    spool.txns.take(line)
    return spool.txns.by_id[txn_id]


def check_open(one: Transaction, more: int = 0) -> None:
    """WrongState unless `more` messages can be prepared in it."""
    if not one.is_open:
        raise WrongState(
            f"transaction {one.txn_id} is {one.standing}: nothing can be added to it"
        )
    if len(one.members) + more > MOST:
        raise WrongState(
            f"transaction {one.txn_id} would hold more than {MOST} messages, the most "
            "it may: send the rest in another"
        )


def is_repeated(one: Transaction, ids: list[str]) -> bool:
    """Return whether a commit of `ids` has been made before; WrongState when the
    decision was another one, or `ids` are not all prepared in it."""
    if one.is_open:
        _check_members(one, ids)
        return False
    if one.standing is Standing.ABORTED:
        raise WrongState(f"transaction {one.txn_id} is aborted: open another")
    if transactions.digest(ids) != one.digest:
        raise WrongState(
            f"transaction {one.txn_id} is committed, with other messages than these"
        )
    return True


def _check_members(one: Transaction, ids: list[str]) -> None:
    for msg_id in ids:
        if msg_id not in one.members:
            raise WrongState(
                f"transaction {one.txn_id} holds no message {msg_id:.60}: prepare it "
                "there first, or leave it out"
            )


def check_whole(spool: Spool, one: Transaction, ids: list[str]) -> None:
    """WrongState when a message was taken away by hand while RQ was stopped."""
    for msg_id in ids:
        entry = spool.entries.get(msg_id)
        if entry is None or entry.state is not State.PREP:
            raise WrongState(
                f"transaction {one.txn_id} has lost message {msg_id}, removed by hand: "
                "abort it and send all again"
            )


def commit(spool: Spool, one: Transaction, ids: list[str]) -> None:
    """Accept the messages `ids` and discard all others of the transaction, by one line.

    Ids beyond INLINE lie in its manifest by now.
    """
    said = {"is": Standing.COMMITTED, "n": len(ids), "sha256": transactions.digest(ids)}
    listed = {"manifest": True} if len(ids) > transactions.INLINE else {"ids": ids}
    line = spool.note(Note.TXN, txn=one.txn_id, **said, **listed)
    spool.txns.take({**line, "ids": ids})
    spool.end_prepared(ids, Event.COMMIT, one.txn_id)
    _finish(spool, one)


def abort(spool: Spool, one: Transaction) -> None:
    """Discard all messages of an open transaction, by one line."""
    said = {"is": Standing.ABORTED}
    spool.txns.take(spool.note(Note.TXN, txn=one.txn_id, **said))
    _finish(spool, one)
    with contextlib.suppress(OSError):  # of a commit that came to nothing
        transactions.drop_manifest(spool.queue, one)


def check_aborted(one: Transaction) -> None:
    """WrongState when it is too late for that."""
    if one.standing is Standing.COMMITTED:
        raise WrongState(f"transaction {one.txn_id} is committed already")


def finish_all(spool: Spool, folded: Folded) -> None:
    """Make up for what a crash has cut off from decisions: discard what they left in
    prep, and tell of what they let into que."""
    for one in spool.txns.by_id.values():
        if not one.is_open:
            _finish(spool, one)
    for txn_id, ids in folded.untold.items():
        for _ in spool.tell_of(list(ids), Event.COMMIT, txn_id):
            pass


def _finish(spool: Spool, one: Transaction) -> None:
    entries = spool.entries
    left = [i for i in one.members if i in entries and entries[i].state is State.PREP]
    spool.end_prepared(left, Event.DISCARD, one.txn_id)
    one.members.clear()
