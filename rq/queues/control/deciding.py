"""The steps of a decision about a transaction, one after the other, few in each turn; be
it asked for, or due because its time is over; and how a transaction stands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import islice

from rq import names
from rq.errors import RQError, not_done
from rq.layout import ATTACH, QueueDir
from rq.logs import fields
from rq.message.message import Message
from rq.proc.slices import in_slices
from rq.queues.control import rows
from rq.queues.control.command import Ok
from rq.queues.owner.owner import Owner
from rq.replies import TransactionView
from rq.spool import LAG_MESSAGES, attach, decisions, transactions
from rq.spool.transactions import Standing, Transaction
from rq.words.nesting import Json
from rq.words.states import State

_LED = 5.0  # seconds, about, that the reply to a decision waits for its chain
_PAUSE = 0.05  # seconds between looks at the lag
_LONGEST_LOOK = 3600.0  # seconds

log = logging.getLogger(__name__)
_DROPPED = 500  # lists of ids that are removed in one turn


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be accepted together."""

    ids: Sequence[Json]
    chain: list[str]  # transactions
    files: list[str]  # of rows


async def committed(
    owner: Owner, txn: Transaction, choice: Choice, ended: asyncio.Future[None]
) -> Ok[TransactionView]:
    """Commit, once the files of the messages are on disk.

    No other request changes the transaction or its messages until then, so what was
    looked at a slice ago is still so."""
    try:
        ids = await _ids(choice.ids)
        accepted = await _decided(owner, txn, ids, choice)
    finally:
        txn.deciding = None
        ended.set_result(None)
    if accepted:
        await _wait_all(owner, ids)
    await _lead(owner, txn)
    return "ok", fields_of(txn)


async def _decided(
    owner: Owner, txn: Transaction, ids: list[str], choice: Choice
) -> bool:
    """Write the decision; return whether it is new, and messages wait from now on."""
    spool = owner.spool
    if decisions.is_repeated(txn, ids):
        if not txn.head:
            decisions.check_same_chain(txn, choice.chain)
            decisions.check_files(txn, choice.files)
        return False
    decisions.check_files(txn, choice.files)
    owner.admission.check_open()
    await in_slices(ids, lambda msg_id: decisions.check_there(spool, txn, msg_id))
    await _make_durable(owner, txn, ids)
    others = await _left(owner, txn, set(ids))
    run = owner.loop.run_in_executor
    digest = await run(owner.pools.looks, transactions.digest, ids)
    await in_slices(ids, owner.uniqueness.learn)
    owner.admission.check_open()
    owner.uniqueness.check_together(ids)
    if txn.head:
        decisions.check_in_time(spool, txn)
        decisions.choose(spool, txn, ids, digest)
        return False
    decisions.check_chain(spool, txn, choice.chain)
    if choice.files:
        rows.check_taken(owner)
    decisions.commit(spool, txn, ids, others, digest, choice.files)
    return True


async def aborted(
    owner: Owner, txn: Transaction, ended: asyncio.Future[None]
) -> Ok[TransactionView]:
    try:
        left = await _left(owner, txn, set())
        decisions.check_aborted(owner.spool, txn)  # its head may be decided by now
        decisions.abort(owner.spool, txn, left)
    finally:
        txn.deciding = None
        ended.set_result(None)
    owner.wake()
    await _lead(owner, txn)
    return "ok", fields_of(txn)


async def _lead(owner: Owner, head: Transaction) -> None:
    """Make the first of a chain follow: the decision stands and can be answered, so the
    rest goes on behind the reply, whatever hinders it."""
    try:
        await follow_all(owner, head.txn_id, time.monotonic() + _LED)
    except RQError as error:
        log.warning(
            "a chain of transactions is decided, and goes on later: %s",
            fields(txn=head.txn_id, reason=error),
        )


async def follow_all(owner: Owner, head: str, until: float = math.inf) -> None:
    """Do what the head of a chain has decided for all that are bound to it, one in a turn,
    `until` (monotonic). What is left, or does not succeed, is for `go_on`."""
    for txn in owner.spool.txns.bound(head):
        while txn.pending is not None and time.monotonic() < until:
            left = until - time.monotonic()
            await asyncio.wait([txn.pending], timeout=min(left, _LONGEST_LOOK))
        due = owner.spool.txns.due(txn)
        if time.monotonic() > until or owner.admission.stopping:
            return
        if due is None:
            continue
        txn.deciding = owner.loop.create_future()
        if due is Standing.ABORTED:
            await aborted(owner, txn, txn.deciding)
        else:
            await _followed(owner, txn, until)


async def _followed(owner: Owner, txn: Transaction, until: float) -> None:
    """Commit a transaction whose head is committed, once there is room for it."""
    spool, run = owner.spool, owner.loop.run_in_executor
    read, ended = transactions.read_manifest, txn.deciding
    assert ended is not None
    try:
        if not await _has_room(owner, until):
            return
        ids = await run(owner.pools.files, read, spool.queue, txn.txn_id, txn.digest)
        others = await _left(owner, txn, set(ids))
        decisions.commit(spool, txn, ids, others, txn.digest)
        await _wait_all(owner, ids)
    except OSError as error:
        raise not_done(error) from None
    finally:
        txn.deciding = None
        ended.set_result(None)


async def _has_room(owner: Owner, until: float) -> bool:
    """Wait until folders are made of what followed before; return whether another may
    follow. The lag stays bounded, so does the work of a start after a crash."""
    while owner.admission.closed() is None:
        if owner.spool.lag < LAG_MESSAGES // 2:
            return True
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_PAUSE)
    return False


async def _ids(value: Sequence[Json]) -> list[str]:
    ids: dict[str, None] = {}
    await in_slices(value, lambda msg_id: ids.setdefault(names.msg_id(msg_id)))
    return list(ids)


async def _left(owner: Owner, txn: Transaction, chosen: set[str]) -> list[str]:
    """Return the messages in prep that a decision discards."""
    left: list[str] = []

    def look(msg_id: str) -> None:
        if msg_id not in chosen and decisions.is_left(owner.spool, msg_id):
            left.append(msg_id)

    await in_slices(list(txn.members), look)
    return left


async def _wait_all(owner: Owner, ids: list[str]) -> None:
    """Take messages that were accepted into the schedule."""
    await asyncio.sleep(0)  # the decision itself is one turn: what follows is another
    await in_slices(ids, lambda msg_id: _waits(owner, msg_id), owner.wake)
    owner.wake()


def _waits(owner: Owner, msg_id: str) -> None:
    """Take an accepted message into the schedule; it may be gone again by now."""
    owner.count("accepted")
    entry = owner.spool.entry_of(msg_id)
    if entry is not None and entry.state is State.QUE and entry.rider_of is None:
        owner.backlog.put(msg_id)


async def _make_durable(owner: Owner, txn: Transaction, ids: list[str]) -> None:
    spool = owner.spool
    run = owner.loop.run_in_executor
    try:
        there = await run(owner.pools.files, _with_files, spool.queue, ids)
        # Of those before its start a power cut may have taken the directory itself.
        old = {i for i in ids if spool.entry(i).since < owner.began_at}
        with_files: list[Message] = []

        def look(msg_id: str) -> None:
            message = spool.read(msg_id)
            attach.sweep(spool, message)
            if message.attachments:
                with_files.append(message)

        await in_slices([i for i in ids if i in there or i in old], look)
        for message in with_files:
            deep = message.msg_id in old
            await run(owner.pools.files, attach.verify, spool.dir_fd, message, deep)
        if len(ids) > transactions.INLINE or txn.head:
            write = transactions.write_manifest
            await run(owner.pools.files, write, spool.queue, txn.txn_id, ids)
    except OSError as error:
        raise not_done(error) from None


def _with_files(queue: QueueDir, ids: list[str]) -> frozenset[str]:
    """Return which messages have a directory of attachments; for a thread."""
    place = f"{queue.path}/{State.PREP}"
    return frozenset(i for i in ids if os.path.isdir(f"{place}/{i}/{ATTACH}"))


# ---- how a transaction stands, as a client is told it


def fields_of(txn: Transaction) -> TransactionView:
    """Return what a client is told of a transaction."""
    rows = sum(rows.left for rows in txn.rows.values())
    number = len(txn.members) + rows if txn.is_open else txn.number
    fields: TransactionView = {"txn": txn.txn_id, "state": txn.standing}
    if txn.key is not None:
        fields["key"] = txn.key.rpartition("\t")[2]  # as it was said, without its user
    if txn.head:
        fields["of"] = txn.head
    return {**fields, "messages": number, "ttl": txn.ttl, "until": txn.ends}


def now_of(txn: Transaction) -> TransactionView:
    """As `fields_of`, with what changes after its decision: how many rows wait."""
    rows = sum(rows.left for rows in txn.rows.values())
    return {**fields_of(txn), "rows": rows} if rows else fields_of(txn)


# ---- the end of transactions by age


def expire(
    owner: Owner,
    now: float,
    covered: int,
    spawn: Callable[[Coroutine[object, None, object]], None],
) -> None:
    """Abort transactions whose time is over; remove the lists of those that a checkpoint
    has `covered`: it goes up to that event."""
    spool = owner.spool
    for txn in spool.txns.open_ones():
        # One that is in a chain ends with its head.
        if not txn.head and now > txn.ends and txn.pending is None:
            log.warning(
                "a transaction was not committed in time; RQ aborts it: %s",
                fields(
                    txn=txn.txn_id, messages=fields_of(txn)["messages"], ttl=txn.ttl
                ),
            )
            txn.deciding = owner.loop.create_future()
            spawn(aborted(owner, txn, txn.deciding))
    old = (txn for txn in spool.txns.with_manifest() if txn.manifest <= covered)
    for txn in islice(old, _DROPPED):
        with contextlib.suppress(OSError):
            transactions.drop_manifest(spool.queue, txn)


def go_on(
    owner: Owner, spawn: Callable[[Coroutine[object, None, object]], None]
) -> None:
    """Go on with chains that are decided, whatever the clock says."""
    txns = owner.spool.txns
    for head in txns.late():
        # Of those that a request leads already, one is being worked on.
        if all(txn.pending is None for txn in txns.bound(head)):
            spawn(follow_all(owner, head))
