"""The commands of transactions: open, prepare, commit, abort, show; and what may be bound
to the head of a chain.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import cast

from rq.errors import BadInput, BadMessage, Busy, NoSuchMessage, WrongState
from rq.logs import fields
from rq.message import fieldnames
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.proc.slices import in_slices
from rq.queues import arguments
from rq.queues.control import deciding, idempotency, predecessors, rows
from rq.queues.control.command import (
    Context,
    Handler,
    NowOrLater,
    Ok,
    Request,
)
from rq.queues.control.deciding import fields_of, now_of
from rq.queues.control.idempotency import Key
from rq.queues.control.predecessors import Answers
from rq.queues.owner.owner import Owner
from rq.replies import RowsView, TransactionView
from rq.spool import decisions
from rq.spool.transactions import Transaction
from rq.words.nesting import Json

TTL = 3600.0  # seconds between two requests of a transaction, unless it asks for others
LONGEST = 86400.0
MOST_OPEN = 1000  # transactions of a queue

log = logging.getLogger(__name__)


def open_txn(ctx: Context, request: Request) -> Ok[TransactionView]:
    """Open a transaction, or give the one that was opened with the same key; `of` one
    that is decided when that other one is."""
    owner = ctx.owner
    key = idempotency.key_of_txn(ctx.connection.asker, request)
    ttl = arguments.seconds(request, "ttl", TTL, 1.0, LONGEST)
    preparer = idempotency.preparer_in(ctx.connection.asker, request)
    owner.admission.check_open()
    if (of := request.get("of")) is not None:
        head = _head_of(owner, of, key and key.text)
        preparer.check(head)
        user = preparer.user
        bound = decisions.open_one(owner.spool, None, ttl, head.txn_id, user)
        return "ok", fields_of(bound)
    txn = _with_key(owner, key)
    if txn is None:
        if _open(owner) >= MOST_OPEN:
            raise Busy(f"not accepted: {MOST_OPEN} transactions are open")
        kept = None if key is None else key.kept
        txn = decisions.open_one(owner.spool, kept, ttl, preparer=preparer.user)
    if not txn.is_open:
        return "ok", fields_of(txn)
    return "ok", {**fields_of(txn), "takes_rows": rows.are_taken(owner.config)}


def _with_key(owner: Owner, key: Key | None) -> Transaction | None:
    """Return the transaction that was opened with a key, by this user or by the version
    before."""
    if key is None:
        return None
    with_key = owner.spool.txns.with_key
    txn = with_key(key.kept)
    if txn is None and key.before is not None:
        before = with_key(key.before)
        return before if before is not None and before.preparer is None else None
    return txn


def _open(owner: Owner) -> int:
    return owner.spool.txns.open


_Verb = Callable[[Owner, Transaction, JsonObject], NowOrLater[object]]


def _one_by_one(verb: _Verb) -> Handler:
    """Return the handler of a command that changes a transaction: what comes while another
    one is at work on it begins when that has ended, and finds out how it went."""

    @functools.wraps(verb)
    def handler(ctx: Context, request: Request) -> NowOrLater[object]:
        txn = _named(ctx.owner, request)
        preparer = idempotency.preparer_in(ctx.connection.asker, request)
        preparer.check(txn)
        request[idempotency.BY] = preparer.by  # found here, for who makes messages
        if txn.pending is None:
            return verb(ctx.owner, txn, request)
        return _afterwards(verb, ctx.owner, txn, request)

    return handler


async def _afterwards(
    verb: _Verb, owner: Owner, txn: Transaction, request: JsonObject
) -> Ok[object]:
    while txn.pending is not None:
        await asyncio.wait([txn.pending])
    reply = verb(owner, txn, request)
    return await reply if inspect.isawaitable(reply) else reply


@_one_by_one
def prepare_txn(
    owner: Owner, txn: Transaction, request: JsonObject
) -> Awaitable[Ok[list[str]]]:
    """Prepare messages in a transaction, all or none of them; answer their ids."""
    wanted = request.get("messages")
    if not isinstance(wanted, list):
        raise BadInput("lacking 'messages', a list of messages")
    owner.admission.check_open()
    decisions.check_in_time(owner.spool, txn)
    decisions.check_open(txn, len(wanted))
    txn.filling = owner.loop.create_future()
    by = cast("str | None", request.get(idempotency.BY))
    return _prepared(owner, txn, wanted, by)


async def _prepared(
    owner: Owner, txn: Transaction, wanted: Sequence[Json], by: str | None
) -> Ok[list[str]]:
    """Prepare messages a few at a time, once all of them are known to be good."""
    messages: list[Message] = []
    ended = txn.filling
    assert ended is not None, "who is filling it has said so"

    def prepare(message: Message) -> None:
        owner.admission.check_open()
        owner.spool.prepare_in(txn.txn_id, message)

    try:
        said = await predecessors.answers(owner, wanted)
        make = functools.partial(_message_of, owner, said, by)
        await in_slices(enumerate(wanted), lambda pair: messages.append(make(*pair)))
        await in_slices(messages, prepare, owner.wake)
    finally:
        txn.filling = None
        ended.set_result(None)
    owner.wake()
    return "ok", [message.msg_id for message in messages]


@_one_by_one
def add_rows(
    owner: Owner, txn: Transaction, request: JsonObject
) -> Awaitable[Ok[RowsView]]:
    """Take rows into a transaction, all or none of them; answer the name of their file."""
    wanted = rows.messages_in(request.get("messages"))
    owner.admission.check_open()
    decisions.check_in_time(owner.spool, txn)
    rows.check(owner, txn)
    txn.filling = owner.loop.create_future()
    return rows.add(owner, txn, wanted, txn.filling)


def _message_of(
    owner: Owner, said: Answers, by: str | None, at: int, fields: Json
) -> Message:
    """Return the message that is asked for; BadMessage tells which one cannot be."""
    try:
        if not isinstance(fields, dict):
            raise BadMessage("it is not a JSON object")
        predecessors.check(fields, said)
        wanted = {"dest": owner.name, **fields}
        is_new = not fieldnames.is_handed_on(wanted, None)
        message = owner.make(wanted, is_new=is_new, by=by)
        message.encode_new()
    except BadMessage as error:
        raise type(error)(f"messages[{at}]: {error}") from None
    return message


@_one_by_one
def drop_rows(owner: Owner, txn: Transaction, request: JsonObject) -> Ok[RowsView]:
    """Discard the rows of a committed transaction that are no messages yet; answer how
    many."""
    number = decisions.drop_rows(owner.spool, txn)
    log.warning(
        "rows that were accepted are discarded: %s",
        fields(txn=txn.txn_id, rows=number),
    )
    owner.wake()
    return "ok", {"messages": number}


@_one_by_one
def commit_txn(
    owner: Owner, txn: Transaction, request: JsonObject
) -> Awaitable[Ok[TransactionView]]:
    """Accept the messages that are named and discard the others of the transaction; of one
    that is in a chain they are chosen, and the commit of its head accepts them."""
    value = request.get("ids")
    if not isinstance(value, list):
        raise BadInput("lacking 'ids', a list of the messages to be accepted")
    chain = _chain_named(owner, txn, request.get("chain"))
    files = rows.files_in(txn, request.get("rows"))
    decisions.check_in_time(owner.spool, txn)
    # Before anything else can be asked: the next may come in this very turn.
    txn.deciding = owner.loop.create_future()
    choice = deciding.Choice(value, chain, files)
    return deciding.committed(owner, txn, choice, txn.deciding)


@_one_by_one
def abort_txn(
    owner: Owner, txn: Transaction, request: JsonObject
) -> NowOrLater[TransactionView]:
    """Discard all that was prepared; asked again, it is done already."""
    decisions.check_aborted(owner.spool, txn)
    if not txn.is_open:
        return "ok", fields_of(txn)
    txn.deciding = owner.loop.create_future()
    return deciding.aborted(owner, txn, txn.deciding)


def show_txn(ctx: Context, request: Request) -> Ok[TransactionView]:
    """Answer how a transaction stands; with `limit` also so many of the messages that an
    open one holds."""
    txn = _named(ctx.owner, request)
    if request.get("limit") is None:
        return "ok", now_of(txn)
    held = islice(txn.members if txn.is_open else (), _limit(request))
    return "ok", {**now_of(txn), "ids": list(held)}


async def list_txns(ctx: Context, request: Request) -> Ok[list[TransactionView]]:
    """Answer how all stand that are open, the oldest first; with `rows` those that are
    committed and of which rows wait; with `limit` then so many of those that are decided,
    what was opened last first."""
    all_txns = ctx.owner.spool.txns
    listed = all_txns.with_rows() if request.get("rows") else all_txns.open_ones()
    if request.get("limit") is not None:
        decided = (txn for txn in reversed(all_txns.by_id.values()) if not txn.is_open)
        listed += islice(decided, _limit(request))
    views: list[TransactionView] = []  # chains make it long
    await in_slices(listed, lambda txn: views.append(now_of(txn)))
    return "ok", views


def _limit(request: JsonObject) -> int:
    return min(arguments.whole(request, "limit", MOST_OPEN), MOST_OPEN)


def _named(owner: Owner, request: JsonObject) -> Transaction:
    txn_id = request.get("txn")
    txn = owner.spool.txns.get(txn_id) if isinstance(txn_id, str) else None
    if txn is None:
        raise NoSuchMessage(
            f"no transaction {txn_id!s:.60}: it was never opened here, or decided more "
            "than 7 days ago"
        )
    return txn


HANDLERS: dict[str, Handler] = {
    "open_txn": open_txn,
    "prepare_txn": prepare_txn,
    "add_rows": add_rows,
    "drop_rows": drop_rows,
    "commit_txn": commit_txn,
    "abort_txn": abort_txn,
    "show_txn": show_txn,
    "list_txns": list_txns,
}


# ---- chains: what may be bound to a head, and committed with it


def _head_of(owner: Owner, value: object, key: str | None) -> Transaction:
    """Return the transaction that is to decide for a new one; NoSuchMessage, WrongState or
    BadInput when it cannot."""
    if key is not None:
        raise BadInput("a transaction with `of` has no key: that has one")
    txn = owner.spool.txns.get(value) if isinstance(value, str) else None
    if txn is None:
        raise NoSuchMessage(f"no transaction {value!s:.60} for others to be `of`")
    if txn.head:
        raise WrongState(
            f"transaction {txn.txn_id} is of {txn.head}: open the new one with `of` that"
        )
    if not txn.is_open:
        raise WrongState(
            f"transaction {txn.txn_id} is {txn.standing}: nothing can be added to it"
        )
    _check_no_unique(owner)
    if owner.spool.txns.in_chains >= decisions.LONGEST_CHAIN:
        raise Busy(
            f"not accepted: {decisions.LONGEST_CHAIN} transactions are in chains"
        )
    return txn


def _check_no_unique(owner: Owner) -> None:
    """WrongState in a queue whose messages stand once: all would have to be compared with
    all in one turn."""
    if owner.uniqueness.on:
        raise WrongState(
            f"a queue with `unique` takes {decisions.MOST:,} messages in a transaction and "
            "no chain of them"
        )


def _chain_named(owner: Owner, txn: Transaction, value: object) -> list[str]:
    """Return the transactions that a commit names as its chain."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(
        isinstance(txn_id, str) for txn_id in value
    ):
        raise BadInput("'chain' is not a list of transactions")
    if txn.head and value:
        raise BadInput(f"transaction {txn.txn_id} is of {txn.head}: it has no chain")
    if value:
        _check_no_unique(owner)
    return list(dict.fromkeys(value))
