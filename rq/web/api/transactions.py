"""The operations of transactions: messages that are accepted together, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypedDict, cast

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.kinds import Kind
from rq.message import fieldnames
from rq.replies import RowsView, TransactionView
from rq.web import own
from rq.web.api import requests
from rq.web.api.message_shape import NewMessage
from rq.web.api.operation import OF_OWNERS, Media, Operation
from rq.web.api.shapes import Limits
from rq.web.messages import as_preparer, check_dest
from rq.web.site import Site
from rq.words.nesting import Json, from_json

_PLACE = "/queues/{name}/txn"
_FAILURES = (*OF_OWNERS, Kind.NO_SUCH_MESSAGE, Kind.WRONG_STATE)
# Of what takes messages, one as JSON or one a line.
_OF_MESSAGES = (*_FAILURES, Kind.TOO_LARGE, Kind.NO_ROOM, Kind.REFUSED)
_BODIES = (Media.JSON, Media.LINES, Media.JSONL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTransaction:
    """What a transaction is opened with."""

    key: Annotated[str | None, Limits(shortest=1, longest=200)] = None
    ttl: Annotated[
        float | None, Limits(least=1, most=86400), "seconds between two requests of it"
    ] = None
    of: Annotated[str | None, "a transaction that decides for this one"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The messages of a transaction that are accepted; the others are discarded."""

    ids: list[str]
    chain: Annotated[
        list[str] | None, "transactions of this one that are committed with it"
    ] = None
    rows: Annotated[list[str] | None, "files of rows that are accepted"] = None


class Transactions(TypedDict):
    """The open transactions of a queue, the oldest first."""

    transactions: list[TransactionView]


class Prepared(TypedDict):
    """The messages that were prepared, in the order of the request."""

    ids: list[str]


async def list_transactions(
    site: Site, req: Request, body: None, name: str
) -> Transactions:
    listed = await site.owners.demand(name, "list_txns", {})
    return {"transactions": cast(list[TransactionView], listed)}


async def open_transaction(
    site: Site, req: Request, body: NewTransaction, name: str
) -> TransactionView:
    request: dict[str, Json] = {"key": body.key, "ttl": body.ttl, "of": body.of}
    principal: Principal = req.context.principal
    if body.key is not None:
        request[fieldnames.KEY_OF] = principal.user
    return await _ask(site, name, "open_txn", as_preparer(req, request))


async def get(
    site: Site, req: Request, body: None, name: str, txn: str
) -> TransactionView:
    return await _ask(site, name, "show_txn", {"txn": txn})


async def prepare(
    site: Site, req: Request, body: NewMessage | None, name: str, txn: str
) -> Prepared:
    request = await _messages(site, req, body, name, txn)
    ids = await site.owners.demand(name, "prepare_txn", request)
    return {"ids": cast(list[str], ids)}


async def add_rows(
    site: Site, req: Request, body: NewMessage | None, name: str, txn: str
) -> RowsView:
    request = await _messages(site, req, body, name, txn)
    return cast(RowsView, await site.owners.demand(name, "add_rows", request))


async def _messages(
    site: Site, req: Request, body: NewMessage | None, name: str, txn: str
) -> Mapping[str, Json]:
    """Return the request for a transaction that holds the messages of a body."""
    messages = await _lines(req) if body is None else [cast(Json, body)]
    for message in messages:
        fields = message if isinstance(message, dict) else {}
        check_dest(req, name, fields)
        await own.check_after(site, req.context.principal, name, fields)
    return as_preparer(req, {"txn": txn, "messages": messages})


async def _lines(req: Request) -> list[Json]:
    data = await requests.body(req)
    lines = enumerate(data.split(b"\n"), 1)
    return [from_json(line, f"line {at}") for at, line in lines if line.strip()]


async def commit(
    site: Site, req: Request, body: Choice, name: str, txn: str
) -> TransactionView:
    choice = {"ids": body.ids, "chain": body.chain, "rows": body.rows}
    request = as_preparer(req, {"txn": txn, **cast("dict[str, Json]", choice)})
    return await _ask(site, name, "commit_txn", request)


async def abort(
    site: Site, req: Request, body: None, name: str, txn: str
) -> TransactionView:
    return await _ask(site, name, "abort_txn", as_preparer(req, {"txn": txn}))


async def _ask(
    site: Site, name: str, command: str, request: Mapping[str, object]
) -> TransactionView:
    return cast(TransactionView, await site.owners.demand(name, command, request))


ROWS = (
    Operation(
        operation_id="listTransactions",
        method="GET",
        path=_PLACE,
        role=Role.VIEWER,
        summary="List the open transactions.",
        request=None,
        reply=Transactions,
        failures=OF_OWNERS,
        handler=list_transactions,
    ),
    Operation(
        operation_id="openTransaction",
        method="POST",
        path=_PLACE,
        role=Role.PRODUCER,
        summary="Open a transaction, or find the one that was opened with this key.",
        request=NewTransaction,
        reply=TransactionView,
        failures=_FAILURES,
        handler=open_transaction,
    ),
    Operation(
        operation_id="getTransaction",
        method="GET",
        path=f"{_PLACE}/{{txn}}",
        role=Role.VIEWER,
        summary="Show how a transaction stands.",
        request=None,
        reply=TransactionView,
        failures=_FAILURES,
        handler=get,
    ),
    Operation(
        operation_id="prepareMessages",
        method="POST",
        path=f"{_PLACE}/{{txn}}/messages",
        role=Role.PRODUCER,
        summary="Prepare messages: one as JSON, or one a line; all or none.",
        request=NewMessage,
        reply=Prepared,
        failures=_OF_MESSAGES,
        handler=prepare,
        takes=_BODIES,
    ),
    Operation(
        operation_id="addRows",
        method="POST",
        path=f"{_PLACE}/{{txn}}/rows",
        role=Role.PRODUCER,
        summary="Hand in rows, one a line: messages that wait as lines until their turn.",
        request=NewMessage,
        reply=RowsView,
        failures=_OF_MESSAGES,
        handler=add_rows,
        takes=_BODIES,
    ),
    Operation(
        operation_id="commitTransaction",
        method="POST",
        path=f"{_PLACE}/{{txn}}/commit",
        role=Role.PRODUCER,
        summary="Accept the messages that are named, and discard the others.",
        request=Choice,
        reply=TransactionView,
        failures=(*_FAILURES, Kind.NOT_WHOLE, Kind.NO_ROOM, Kind.NOT_UNIQUE),
        handler=commit,
    ),
    Operation(
        operation_id="abortTransaction",
        method="POST",
        path=f"{_PLACE}/{{txn}}/abort",
        role=Role.PRODUCER,
        summary="Discard all that was prepared.",
        request=None,
        reply=TransactionView,
        failures=_FAILURES,
        handler=abort,
    ),
)
