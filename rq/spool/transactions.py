"""Transactions: messages that are accepted together or not at all.

More than one of them holds are a chain: others are bound to one, its head, and the line
that decides the head decides for them. Each then gets a line of its own. Very many are
rows of files, which the line of the decision names (`rows`).

The journal holds the whole of each message that is prepared in one. The decision is one
line; what follows from it (some messages go to que, the others are removed) is done again
by recovery. Owner and recovery make the table of transactions from the same lines.
"""

from __future__ import annotations

import hashlib
import os
from asyncio import Future
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from rq.errors import Damaged
from rq.files import durable
from rq.journal.line import Line
from rq.layout import QueueDir
from rq.spool.record import Record
from rq.spool.rows import Rows, Stock
from rq.words.states import Event, Note

REMEMBERED = 7 * 86400.0  # seconds that a decision is remembered
INLINE = 10_000  # ids that the line of a decision holds; more lie in a manifest
DROPPED = "dropped"  # `is` of a line: rows that wait become no messages
_MANIFEST = "txn-"
# Last fields of a row of the index that an older RQ wrote.
_BEFORE_CHAINS, _BEFORE_ROWS = 3, 5


class Standing(StrEnum):
    """How a transaction stands; the word `is` of its lines."""

    OPEN = "open"
    READY = "ready"  # its messages are chosen; its head decides
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """A transaction; its members are messages in prep that wait for its decision, or,
    when that has been made, those that were not chosen."""

    txn_id: str
    key: str | None
    ttl: float  # seconds that it may be left alone
    touched: float  # epoch seconds of its last line
    standing: Standing = Standing.OPEN
    members: dict[str, None] = field(default_factory=dict)
    number: int = 0  # how many messages it has committed
    digest: str = ""  # of their ids
    manifest: int = 0  # a file with ids is kept until this event is covered; 0: none
    head: str = ""  # the transaction that decides for it
    leader: Transaction | None = None  # the same, while it is known
    # Those that it has decided for: they are committed when it is.
    chain: dict[str, None] = field(default_factory=dict)
    # Files of rows; when it is committed, those that were chosen and are not used up.
    rows: dict[str, Rows] = field(default_factory=dict)
    files: str = ""  # digest of the names of those that were chosen
    # The user who prepares in it; "": RQ itself. None: the version before has opened it.
    preparer: str | None = None
    filling: Future[None] | None = None  # ends with a request that prepares messages
    deciding: Future[None] | None = None  # ends with its commit, which awaits the disk

    @property
    def is_open(self) -> bool:
        """Whether nothing is decided."""
        return self.standing in (Standing.OPEN, Standing.READY)

    @property
    def is_ready(self) -> bool:
        return self.standing is Standing.READY

    @property
    def pending(self) -> Future[None] | None:
        """What ends with the request that is at work on it; None while none is."""
        return self.deciding or self.filling

    @property
    def ends(self) -> float:
        """When it is aborted, if no request is about it, or forgotten: epoch seconds. One
        in a chain is aborted with its head."""
        if self.is_open and self.leader is not None and self.leader.is_open:
            return self.leader.ends
        return self.touched + (self.ttl if self.is_open else REMEMBERED)

    def to_json(self) -> list[Any]:
        return [
            self.txn_id,
            self.key,
            self.ttl,
            self.touched,
            self.standing,
            list(self.members),
            self.number,
            self.digest,
            self.manifest,
            self.head,
            list(self.chain),
            # Not even an empty one, so that an older RQ can read most rows.
            *([[self.files, [rows.to_json() for rows in self.left()]]] * self.has_rows),
        ]

    @property
    def has_rows(self) -> bool:
        """Whether rows were, or may be, accepted with it."""
        return bool(self.rows or self.files)

    def left(self) -> list[Rows]:
        """Return the files of rows that are of use."""
        return [rows for rows in self.rows.values() if rows.left]


class Transactions:
    """All transactions of a queue that are open, or were decided not long ago.

    Each decided one is kept for a week, so there may be very many: what runs at every
    turn looks only at those for which something is to be done.
    """

    def __init__(
        self, rows: Iterable[list[Any]] = (), preparers: Mapping[str, str] | None = None
    ) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.by_key: dict[str, str] = {}
        self._of: dict[str, Transaction] = {}  # message: the open one that holds it
        self._open: dict[str, Transaction] = {}  # in the order of their opening
        # In the order of their decision. A deque, because finding the first key of a dict
        # takes longer the more keys were removed before it.
        self._decided: deque[Transaction] = deque()
        self._listed: dict[str, Transaction] = {}  # with a manifest
        # Those that are bound to each head, and not decided.
        self._bound: dict[str, dict[str, Transaction]] = {}
        self.stock = Stock()
        self._dropped: set[str] = set()  # unknown ones whose rows were discarded
        for row in rows:
            txn = _from_json(row)
            txn.preparer = (preparers or {}).get(txn.txn_id)
            self._add(txn)
        self._decided = deque(sorted(self._decided, key=lambda txn: txn.touched))
        for txn in self._decided:
            self._stock(txn)

    @property
    def open(self) -> int:
        """How many are open, a chain counted once."""
        return len(self._open) - self.in_chains

    @property
    def in_chains(self) -> int:
        """How many are bound to a head, and not decided."""
        return sum(map(len, self._bound.values()))

    def open_ones(self) -> list[Transaction]:
        """Return those that are open, the oldest first."""
        return sorted(self._open.values(), key=lambda txn: txn.txn_id)

    def bound(self, head: str) -> list[Transaction]:
        """Return those of a chain that are not decided yet."""
        return list(self._bound.get(head, {}).values())

    def late(self) -> list[str]:
        """Return the heads that are decided, and whose chains have not followed."""
        heads = ((head, self.by_id.get(head)) for head in self._bound)
        return [head for head, txn in heads if txn is None or not txn.is_open]

    def due(self, txn: Transaction) -> Standing | None:
        """Return what the head of its chain has decided for one that is not decided."""
        if not txn.head or not txn.is_open:
            return None
        head = self.by_id.get(txn.head)
        if head is None:
            return Standing.ABORTED
        if head.is_open:
            return None
        is_in = txn.txn_id in head.chain
        return Standing.COMMITTED if is_in else Standing.ABORTED

    def with_manifest(self) -> list[Transaction]:
        """Return those whose ids lie in a file."""
        self._listed = {i: txn for i, txn in self._listed.items() if txn.manifest}
        return list(self._listed.values())

    def with_rows(self) -> list[Transaction]:
        """Return those that are committed and of which rows wait, the oldest first."""
        names = dict.fromkeys(rows.txn for rows in self.stock)
        return [self.by_id[txn_id] for txn_id in names]

    def files_of_rows(self) -> set[str]:
        """Return the files of rows that are of use."""
        return {rows.file for txn in self.by_id.values() for rows in txn.left()}

    def get(self, txn_id: str) -> Transaction | None:
        return self.by_id.get(txn_id)

    def of(self, msg_id: str) -> Transaction | None:
        """Return the open transaction that a message in prep belongs to."""
        return self._of.get(msg_id)

    def with_key(self, key: str) -> Transaction | None:
        """Return the transaction that was opened with a key, unless it was aborted:
        then nothing was sent, and the key may be used again."""
        txn = self.by_id.get(self.by_key.get(key, ""))
        return None if txn is None or txn.standing is Standing.ABORTED else txn

    def forget(self, now: float) -> None:
        """Forget what was decided long ago. What is still of use stays, and keeps no
        other: rows that wait, a chain that has not followed, messages to be discarded."""
        kept: list[Transaction] = []
        while self._decided:
            first = self._decided[0]
            # When the clock went back its time begins again: it must not stay for ever.
            first.touched = min(first.touched, now)
            if now <= first.ends:
                break
            self._decided.popleft()
            if first.left() or first.members or first.txn_id in self._bound:
                kept.append(first)
                continue
            del self.by_id[first.txn_id]
            if first.key is not None and self.by_key.get(first.key) == first.txn_id:
                del self.by_key[first.key]
        self._decided.extendleft(reversed(kept))

    # ---- the fold

    def take(self, record: Record) -> None:
        """Take a line of the journal; one that was taken before changes nothing."""
        txn = self.by_id.get(record.get("txn", ""))
        if record["ev"] == Note.TXN:
            if txn is None:
                self._begin(record)
            elif txn.is_open and record["is"] == Standing.READY:
                _choose(txn, record)
            elif txn.is_open and record["is"] != Standing.OPEN:
                self._decide(txn, record)
        elif record["ev"] == Event.PREPARE and txn is not None and txn.is_open:
            txn.members[record["msg"]] = None
            _touch(txn, record)
            self._of[record["msg"]] = txn
        elif record["ev"] == Note.ROWS:
            self._take_rows(txn, record)
        elif "row" in record:
            self._take_row(*record["row"], record["seq"])

    def _take_rows(self, txn: Transaction | None, record: Record) -> None:
        """Add rows to an open transaction; or discard those that wait of one that
        is committed."""
        is_drop = record.get("is") == DROPPED
        if txn is None and is_drop:
            self._dropped.add(record["txn"])
        elif txn is None:
            return
        elif txn.is_open and not is_drop:
            file = record["file"]
            txn.rows[file] = Rows(file, record["n"], record["sha256"])
            _touch(txn, record)
        elif not txn.is_open and is_drop:
            for rows in txn.left():
                self.stock.discard(rows.file, record["seq"])
                del txn.rows[rows.file]

    def _take_row(self, file: str, place: int, seq: int) -> None:
        """Take note that a row is a message."""
        used = self.stock.take(file, place, seq)
        if used is not None and used.txn in self.by_id:
            self.by_id[used.txn].rows.pop(file, None)

    def rows_to_json(self) -> list[list[Any]]:
        """Return what tells of the rows that wait, without all else."""
        return [
            [txn.txn_id, txn.touched, [rows.to_json() for rows in txn.left()]]
            for txn in self.with_rows()
        ]

    def recall_rows(self, rows: Iterable[list[Any]]) -> None:
        """Take rows in that a checkpoint tells of, where the lines of their transaction
        are gone."""
        for txn_id, touched, files in rows:
            if txn_id not in self.by_id and txn_id not in self._dropped:
                txn = Transaction(txn_id, None, 0.0, touched, Standing.COMMITTED)
                txn.rows = {row[0]: Rows(*row) for row in files}
                txn.number = sum(rows.number for rows in txn.rows.values())
                self._add(txn)
                self._stock(txn)
        self.stock.forget_ahead()

    def _begin(self, record: Record) -> None:
        if record["is"] == Standing.OPEN:
            when = record["ts"] / 1e6
            name, ttl = record.get("name"), float(record["ttl"])
            txn = Transaction(record["txn"], name, ttl, when)
            txn.head, txn.preparer = record.get("head", ""), record.get("preparer")
            self._add(txn)

    def _add(self, txn: Transaction) -> None:
        self.by_id[txn.txn_id] = txn
        if txn.key is not None:
            self.by_key[txn.key] = txn.txn_id
        if txn.is_open:
            self._open[txn.txn_id] = txn
            self._of.update(dict.fromkeys(txn.members, txn))
            if txn.head:
                self._bound.setdefault(txn.head, {})[txn.txn_id] = txn
                txn.leader = self.by_id.get(txn.head)
        else:
            self._is_decided(txn)

    def _is_decided(self, txn: Transaction) -> None:
        self._open.pop(txn.txn_id, None)
        self._unbind(txn)
        self._decided.append(txn)
        if txn.manifest:
            self._listed[txn.txn_id] = txn

    def _unbind(self, txn: Transaction) -> None:
        others = self._bound.get(txn.head, {})
        others.pop(txn.txn_id, None)
        if not others:
            self._bound.pop(txn.head, None)

    def _decide(self, txn: Transaction, record: Record) -> None:
        is_listed = txn.is_ready or record.get("manifest")
        _choose(txn, record)
        txn.chain = dict.fromkeys(record.get("chain", ()))
        txn.manifest = record["seq"] if is_listed else 0
        self._is_decided(txn)
        self._choose_rows(txn, record)
        for msg_id in txn.members:
            self._of.pop(msg_id, None)
        ids = record.get("ids", ())
        if len(ids) == len(txn.members):
            txn.members.clear()  # a commit names members only
        for msg_id in ids if txn.members else ():
            txn.members.pop(msg_id, None)

    def _choose_rows(self, txn: Transaction, record: Record) -> None:
        """Take in the rows that a decision accepts, and drop the others."""
        chosen = dict.fromkeys(record.get("files", ()))
        for file in txn.rows.keys() - chosen.keys():
            self.stock.drop(file, record["seq"])
        txn.rows = {file: txn.rows[file] for file in chosen if file in txn.rows}
        if chosen:
            txn.files = digest(chosen)
        self._stock(txn)

    def _stock(self, txn: Transaction) -> None:
        for rows in txn.left():
            self.stock.add(rows, txn.txn_id, txn.touched)


def _touch(txn: Transaction, record: Record) -> None:
    txn.touched = record["ts"] / 1e6
    if txn.leader is not None and txn.leader.is_open:
        txn.leader.touched = txn.touched


def _choose(txn: Transaction, record: Record) -> None:
    """Take what a line says of the messages that were chosen."""
    txn.standing = Standing(record["is"])
    txn.touched = record["ts"] / 1e6
    txn.number, txn.digest = record.get("n", 0), record.get("sha256", "")


def _from_json(row: list[Any]) -> Transaction:
    # Rows that an older RQ wrote end before the chain.
    txn_id, key, ttl, touched, standing, members, *rest = row
    listed = dict.fromkeys(members)
    files, rows = rest.pop() if len(rest) > _BEFORE_ROWS else ("", ())
    chain = rest.pop() if len(rest) > _BEFORE_CHAINS else ()
    txn = Transaction(txn_id, key, ttl, touched, Standing(standing), listed, *rest)
    txn.chain = dict.fromkeys(chain)
    txn.files, txn.rows = files, {row[0]: Rows(*row) for row in rows}
    return txn


# ---- the ids of a decision


def digest(ids: Iterable[str]) -> str:
    """Return what tells one choice of messages from another."""
    return hashlib.sha256(_text(ids)).hexdigest()


def _text(ids: Iterable[str]) -> bytes:
    return "\n".join(sorted(ids)).encode()


def write_manifest(queue: QueueDir, txn_id: str, ids: Iterable[str]) -> None:
    """Write down, durably, more ids than a line of the journal can hold; for a thread."""
    durable.write_durable(_manifest(queue, txn_id), _text(ids))
    durable.crash_point("txn:manifest-written")


def drop_manifest(queue: QueueDir, txn: Transaction) -> None:
    """Remove the manifest of a decision that a checkpoint covers: no recovery reads it."""
    durable.unlink(os.fspath(_manifest(queue, txn.txn_id)))
    txn.manifest = 0


def clear_manifests(
    queue: QueueDir, txns: Transactions, decided: Iterable[str]
) -> None:
    """Remove the manifests of a queue that is opened, but those of decisions: what a
    crash came before, and what was aborted then would never be removed.

    `decided`: those that a next recovery would read again.
    """
    kept = {_MANIFEST + txn_id for txn_id in decided}
    kept.update(_MANIFEST + txn.txn_id for txn in txns.with_manifest())
    kept.update(_MANIFEST + txn.txn_id for txn in txns.open_ones() if txn.is_ready)
    for name in os.listdir(queue.journal):
        if name.removeprefix(".").startswith(_MANIFEST) and name not in kept:
            durable.unlink(os.fspath(queue.journal / name))


def expanded(queue: QueueDir, line: Line) -> Record:
    """Return a line of the journal with the ids that its manifest holds.

    Damaged: the manifest is not the one that the line promises. None is there any more:
    a checkpoint covers what it decided.
    """
    record = cast("Record", line)
    if record["ev"] != Note.TXN or not record.get("manifest"):
        return record
    try:
        ids = read_manifest(queue, record["txn"], record["sha256"])
    except FileNotFoundError:
        return record
    return {**record, "ids": ids}


def read_manifest(queue: QueueDir, txn_id: str, digest: str) -> list[str]:
    """Return the ids that were written down for a decision; Damaged if they are others;
    FileNotFoundError."""
    path = _manifest(queue, txn_id)
    text = path.read_bytes()
    if hashlib.sha256(text).hexdigest() != digest:
        raise Damaged(f"{path} is not the list of messages that transaction {txn_id} "
                      "has committed")  # fmt: skip
    return text.decode().split("\n") if text else []


def _manifest(queue: QueueDir, txn_id: str) -> Path:
    return queue.journal / f"{_MANIFEST}{txn_id}"
