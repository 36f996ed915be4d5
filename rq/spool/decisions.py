"""Deciding transactions: opened, committed whole, aborted; the rules of each step.

Ensures: a decision is written before anything that follows from it, and its messages
leave prep in the same turn; after a crash `finish_all` makes up for what is missing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from rq.errors import Busy, Damaged, DiskFailed, WrongState
from rq.logs import fields
from rq.spool import transactions
from rq.spool.fold import Folded
from rq.spool.record import NoteFields
from rq.spool.store import Spool
from rq.spool.transactions import Standing, Transaction
from rq.spool.uniques import NO_KEY
from rq.words.states import Event, Note, Role, State, next_state

MOST = 40_000  # messages of a transaction
LONGEST_CHAIN = 10_000  # transactions, and of all chains of a queue together
MOST_FILES = 5_000  # of rows, of a transaction
_AT_ONCE = 1000  # ids that one line of the journal names
_NO_FILES = transactions.digest(())

_log = logging.getLogger(__name__)


def open_one(
    spool: Spool, key: str | None, ttl: float, head: str = "", preparer: str = ""
) -> Transaction:
    """Open a transaction, or return the one that was opened with this key; with `head` one
    that is decided when that is. `preparer`: see `Transaction`."""
    txn = spool.txns.with_key(key) if key is not None else None
    if txn is not None:
        return txn
    txn_id = spool.new_id()
    opening: NoteFields = {"txn": txn_id, "is": Standing.OPEN, "ttl": ttl}
    opening["preparer"] = preparer
    if key is not None:
        opening["name"] = key
    if head:
        opening["head"] = head
    spool.txns.take(spool.note(Note.TXN, **opening))
    return spool.txns.by_id[txn_id]


def check_open(txn: Transaction, more: int = 0) -> None:
    """WrongState unless `more` messages can be prepared in it."""
    if txn.standing is not Standing.OPEN:
        raise WrongState(
            f"transaction {txn.txn_id} is {txn.standing}: nothing can be added to it"
        )
    if len(txn.members) + more > MOST:
        raise WrongState(
            f"transaction {txn.txn_id} would hold more than {MOST} messages, the most "
            "it may: send the rest in another"
        )


def is_repeated(txn: Transaction, ids: list[str]) -> bool:
    """Return whether a commit of `ids` has been made before; WrongState when the
    decision was another one, or `ids` are not all prepared in it."""
    if txn.standing is Standing.OPEN:
        _check_members(txn, ids)
        return False
    if txn.standing is Standing.ABORTED:
        raise WrongState(f"transaction {txn.txn_id} is aborted: open another")
    if transactions.digest(ids) != txn.digest:
        raise WrongState(
            f"transaction {txn.txn_id} is {txn.standing}, with other messages than these"
        )
    return True


def check_in_time(spool: Spool, txn: Transaction) -> None:
    """WrongState when the head of its chain is decided, unless it was committed with
    it."""
    due = spool.txns.due(txn)
    if due is not None and not (txn.is_ready and due is Standing.COMMITTED):
        raise WrongState(
            f"transaction {txn.txn_id} comes too late: {txn.head}, which decides for it, "
            "is decided"
        )


def check_chain(spool: Spool, txn: Transaction, chain: Sequence[str]) -> None:
    """WrongState unless all of these wait for this transaction; it decides for them."""
    for txn_id in chain:
        other = spool.txns.get(txn_id)
        if other is None or other.head != txn.txn_id or not other.is_ready:
            raise WrongState(
                f"transaction {txn_id:.60} is not ready to be committed with {txn.txn_id}: "
                "open it with `of`, and commit its messages first"
            )
    txn.chain = dict.fromkeys(chain)


def check_same_chain(txn: Transaction, chain: list[str]) -> None:
    """WrongState when a commit that is repeated names other transactions."""
    if txn.chain.keys() != set(chain):
        raise WrongState(
            f"transaction {txn.txn_id} is committed, with other transactions than these"
        )


def add_rows(
    spool: Spool, txn: Transaction, file: str, number: int, digest: str
) -> None:
    """Add rows that lie in a file by now to a transaction, by one line."""
    said: NoteFields = {
        "txn": txn.txn_id,
        "file": file,
        "n": number,
        "sha256": digest,
    }
    spool.txns.take(spool.note(Note.ROWS, **said))


def drop_rows(spool: Spool, txn: Transaction) -> int:
    """Discard the rows of a committed transaction that are no messages yet; return how
    many. WrongState: there are none."""
    number = sum(rows.left for rows in txn.left())
    if txn.standing is not Standing.COMMITTED or not number:
        raise WrongState(
            f"transaction {txn.txn_id} is {txn.standing}, and no rows of it wait"
        )
    dropped: NoteFields = {"txn": txn.txn_id, "is": transactions.DROPPED, "n": number}
    spool.txns.take(spool.note(Note.ROWS, **dropped))
    return number


def check_files(txn: Transaction, files: Sequence[str]) -> None:
    """WrongState unless all of these files of rows are in a transaction; when it is
    committed, unless they are those that were accepted."""
    if not txn.is_open and transactions.digest(files) != (txn.files or _NO_FILES):
        raise WrongState(
            f"transaction {txn.txn_id} is {txn.standing}, with other rows than these"
        )
    for file in files if txn.is_open else ():
        if file not in txn.rows:
            raise WrongState(
                f"transaction {txn.txn_id} holds no rows {file:.60}: hand them in there "
                "first, or leave them out"
            )


def choose(spool: Spool, txn: Transaction, ids: list[str], digest: str) -> None:
    """Choose the messages of a transaction that is in a chain, by one line: they are in
    its manifest by now, and its head decides."""
    chosen: NoteFields = {
        "txn": txn.txn_id,
        "is": Standing.READY,
        "n": len(ids),
        "sha256": digest,
    }
    spool.txns.take(spool.note(Note.TXN, **chosen))


def _check_members(txn: Transaction, ids: list[str]) -> None:
    for msg_id in ids:
        if msg_id not in txn.members:
            raise WrongState(
                f"transaction {txn.txn_id} holds no message {msg_id:.60}: prepare it "
                "there first, or leave it out"
            )


def check_there(spool: Spool, txn: Transaction, msg_id: str) -> None:
    """WrongState when a message was taken away by hand while RQ was stopped, or is being
    worked on."""
    if not is_left(spool, msg_id):
        raise WrongState(
            f"transaction {txn.txn_id} has lost message {msg_id}, removed by hand: "
            "abort it and send all again"
        )
    if spool.entries[msg_id].busy:
        raise Busy(f"message {msg_id} is being worked on; ask again")


def commit(
    spool: Spool,
    txn: Transaction,
    ids: list[str],
    others: list[str] | None = None,
    digest: str | None = None,
    files: Sequence[str] = (),
) -> None:
    """Accept the messages `ids`, and the rows of `files`, and discard all others of the
    transaction, by one line, which decides for all transactions of its `chain`, too.

    Ids beyond INLINE lie in its manifest by now, and all of one that was ready. `others`
    are those that are still in prep, if the caller has looked; `digest` that of the ids,
    if it is known.
    """
    digest = digest or transactions.digest(ids)
    there = _still_there(spool, txn, ids) if txn.is_ready else ids
    decision: NoteFields = {
        "txn": txn.txn_id,
        "is": Standing.COMMITTED,
        "n": len(ids) + sum(txn.rows[file].number for file in files),
        "sha256": digest,
    }
    if len(ids) > transactions.INLINE or txn.is_ready:
        decision["manifest"] = True
    else:
        decision["ids"] = ids
    if txn.chain:
        decision["chain"] = list(txn.chain)
    if files:
        decision["files"] = list(files)
    spool.txns.take({**spool.note(Note.TXN, **decision), "ids": ids})
    _leave_prep(spool, there, Event.COMMIT, txn.txn_id)
    _finish(spool, txn, others)


def _still_there(spool: Spool, txn: Transaction, ids: list[str]) -> list[str]:
    """Return the messages that were chosen and are still in prep: its head is decided, so
    what was removed by hand since must not keep the others."""
    there = [msg_id for msg_id in ids if is_left(spool, msg_id)]
    if len(there) < len(ids):
        _log.error(
            "messages of a transaction were removed by hand before the commit of its "
            "head; the others are accepted: %s",
            fields(txn=txn.txn_id, head=txn.head, removed=len(ids) - len(there)),
        )
    return there


def abort(spool: Spool, txn: Transaction, others: list[str] | None = None) -> None:
    """Discard all messages of an open transaction, by one line; `others` as above."""
    decision: NoteFields = {"txn": txn.txn_id, "is": Standing.ABORTED}
    was_ready = txn.is_ready
    spool.txns.take(spool.note(Note.TXN, **decision))
    _finish(spool, txn, others)
    if was_ready:
        return  # if a crash forgets this line, its head may still be committed
    with contextlib.suppress(OSError):  # of a commit that came to nothing
        transactions.drop_manifest(spool.queue, txn)


def check_aborted(spool: Spool, txn: Transaction) -> None:
    """WrongState when it is too late for that: it, or the head of its chain with it, is
    committed."""
    if Standing.COMMITTED in (txn.standing, spool.txns.due(txn)):
        raise WrongState(f"transaction {txn.txn_id} is committed already")


def finish_all(spool: Spool, folded: Folded) -> None:
    """Make up for what a crash has cut off from decisions: discard what they left in
    prep, and tell of what they put into que."""
    for txn in spool.txns.open_ones():
        follow(spool, txn)
    for txn in spool.txns.by_id.values():
        if not txn.is_open:
            _finish(spool, txn)
    for txn_id, ids in folded.untold.items():
        for _ in _tell_of(spool, list(ids), Event.COMMIT, txn_id):
            pass


def follow(spool: Spool, txn: Transaction) -> None:
    """Do what the head of its chain has decided for a transaction, if it has; Damaged when
    what was chosen cannot be known any more."""
    due = spool.txns.due(txn)
    if due is Standing.COMMITTED:
        try:
            ids = transactions.read_manifest(spool.queue, txn.txn_id, txn.digest)
        except FileNotFoundError as error:
            raise Damaged(
                f"{error.filename}, the messages of a transaction that is committed with "
                f"{txn.head}, is not there: bring it back from a backup"
            ) from None
        commit(spool, txn, ids, None, txn.digest)
    elif due is Standing.ABORTED:
        abort(spool, txn)


def is_left(spool: Spool, msg_id: str) -> bool:
    """Whether a message that was prepared is still in prep."""
    entry = spool.entries.get(msg_id)
    return entry is not None and entry.state is State.PREP


def _finish(spool: Spool, txn: Transaction, others: list[str] | None = None) -> None:
    left = [i for i in txn.members if is_left(spool, i)] if others is None else others
    _leave_prep(spool, left, Event.DISCARD, txn.txn_id)
    txn.members.clear()


def _leave_prep(spool: Spool, ids: list[str], event: Event, txn_id: str) -> None:
    """Take messages out of prep because their transaction is decided. The line of the
    decision says so, and recovery does the same."""
    target = next_state(State.PREP, event, Role.CREATOR)
    for chunk, seq in _tell_of(spool, ids, event, txn_id):
        spool.events.all_changed(chunk, State.PREP, target, seq)
        if spool.journal.full:
            with contextlib.suppress(DiskFailed):  # the turn's own commit says so
                spool.commit()


def _tell_of(
    spool: Spool, ids: list[str], event: Event, txn_id: str
) -> Iterator[tuple[list[str], int]]:
    """Write lines for those who read the history, of up to a thousand messages that a
    decision takes out of prep; give the messages of each, and its seq."""
    target = next_state(State.PREP, event, Role.CREATOR)
    for at in range(0, len(ids), _AT_ONCE):
        chunk, now = ids[at : at + _AT_ONCE], int(spool.clock() * 1e6)
        said = {"ts": now, "queue": spool.queue.name, "ev": event, "txn": txn_id}
        more = {"state": target, "was": State.PREP, "msgs": chunk}
        if event is Event.COMMIT and spool.uniques.windowed:
            more["uniques"] = _accepted_keys(spool, chunk, now / 1e6)
        yield chunk, spool.journal.append({**said, **more})


def _accepted_keys(spool: Spool, ids: list[str], now: float) -> list[str]:
    """Return the unique keys of messages that are accepted, which count from now on."""
    keys = [
        spool.uniques.key_of(msg_id, spool.entries[msg_id], spool.read)
        if msg_id in spool.entries
        else NO_KEY
        for msg_id in ids
    ]
    for msg_id, key in zip(ids, keys, strict=True):
        if key:
            spool.uniques.accepted(key, msg_id, now)
    return keys
