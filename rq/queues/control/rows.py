"""Rows of a transaction: very many messages, which become such when there is room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import orjson

from rq.config.settings import QueueConfig
from rq.errors import BadInput, BadMessage, WrongState, not_done
from rq.message import fieldnames
from rq.message.fields import param
from rq.message.message import MESSAGE_LIMIT, too_large
from rq.message.table import PARAMS, STEERING
from rq.proc.slices import in_slices
from rq.queues.control.command import Ok
from rq.queues.owner.owner import Owner
from rq.replies import RowsView
from rq.spool import decisions, rows
from rq.spool.transactions import Standing, Transaction
from rq.words.nesting import Json

_PLAIN = frozenset(PARAMS)
# Bytes of a row as a message: its id, its due and its URL may have other lengths then.
_LARGEST = MESSAGE_LIMIT - 4096
# What looks at all messages that wait, and so wants them to be there.
_LOOKING = (
    "unique",
    "coalesce_params",
    "blocking_params",
    "concurrency",
    "fair_params",
    "batch",
)


def are_taken(config: QueueConfig) -> bool:
    """Whether a queue takes rows: one that compares those that wait does not."""
    return not any(getattr(config, name) for name in _LOOKING)


def messages_in(value: object) -> Sequence[Json]:
    """Return the rows that a request holds; BadInput when they are too many, or none."""
    if not isinstance(value, list) or not 0 < len(value) <= rows.MOST:
        raise BadInput(f"lacking 'messages', a list of 1 to {rows.MOST:,} messages")
    return value


def check(owner: Owner, txn: Transaction) -> None:
    """WrongState unless a transaction takes rows."""
    decisions.check_open(txn)
    if txn.head:
        raise WrongState(
            f"transaction {txn.txn_id} is of {txn.head}: hand rows in with that"
        )
    check_taken(owner)
    if len(txn.rows) >= decisions.MOST_FILES:
        raise WrongState(
            f"transaction {txn.txn_id} has {decisions.MOST_FILES:,} files of rows, the "
            "most that it may: send the rest in another"
        )


def check_taken(owner: Owner) -> None:
    """WrongState in a queue that takes no rows."""
    if not are_taken(owner.config):
        names = [name for name in _LOOKING if getattr(owner.config, name)]
        raise WrongState(
            f"a queue with `{names[0]}` takes no rows, for it compares all messages that "
            "wait: prepare messages instead"
        )


async def add(
    owner: Owner,
    txn: Transaction,
    messages: Sequence[Json],
    ended: asyncio.Future[None],
) -> Ok[RowsView]:
    """Write rows into a file, once all of them are known to be good."""
    lines: list[bytes] = []
    try:
        await in_slices(
            enumerate(messages), lambda pair: lines.append(_line(owner, *pair))
        )
        file = await _written(owner, txn, lines)
    except OSError as error:
        raise not_done(error) from None
    finally:
        txn.filling = None
        ended.set_result(None)
    owner.wake()
    return "ok", {"rows": file, "messages": len(lines)}


async def _written(owner: Owner, txn: Transaction, lines: Sequence[bytes]) -> str:
    """Write rows into a file and a line that names it; return its name."""
    spool, file = owner.spool, owner.spool.new_id()
    run, pool = owner.loop.run_in_executor, owner.pools.files
    try:
        digest = await run(pool, rows.write, spool.queue, file, lines)
        owner.admission.check_open()
        decisions.add_rows(spool, txn, file, len(lines), digest)
    except BaseException:
        with contextlib.suppress(OSError):  # the next start removes it
            await run(pool, rows.remove, spool.queue, file)
        raise
    return file


def _line(owner: Owner, at: int, fields: Json) -> bytes:
    """Return a row as it is kept; BadMessage tells which one cannot be."""
    try:
        if not isinstance(fields, dict):
            raise BadMessage("it is not a JSON object")
        if fields.keys() <= _PLAIN:
            line = _plain(fields)
            if line is not None:
                return line
        return _other(owner, fields)
    except BadMessage as error:
        raise type(error)(f"messages[{at}]: {error}") from None


def _plain(fields: Mapping[str, Json]) -> bytes | None:
    """Return a row of params alone, as most are; None when it has to be looked at as a
    whole."""
    for name, value in fields.items():
        if value is not None:
            param(name, value)
    line = orjson.dumps(fields)
    return line if len(line) * 2 < MESSAGE_LIMIT else None


def _other(owner: Owner, fields: Mapping[str, Json]) -> bytes:
    for name in STEERING:
        if name in fields:
            raise BadMessage(f"{name} is not for rows: prepare it as a message")
    wanted = {"dest": owner.name, **fields}
    is_new = not fieldnames.is_handed_on(wanted, None)
    message = owner.make(wanted, is_new=is_new, by=None)  # looked at, and not kept
    size = len(message.encode())
    if size > _LARGEST:
        raise too_large(size)
    return orjson.dumps(fields)


def files_in(txn: Transaction, value: object) -> list[str]:
    """Return the files of rows that a commit names."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(file, str) for file in value):
        raise BadInput("'rows' is not a list of files of rows")
    files = list(dict.fromkeys(value))
    if txn.head and files:
        raise BadInput(f"transaction {txn.txn_id} is of {txn.head}: it has no rows")
    if txn.standing is Standing.OPEN:
        decisions.check_files(txn, files)
    return files
