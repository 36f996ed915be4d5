"""Transactions over HTTP: JSON in, JSON out; any client may use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import falcon
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.errors import BadInput
from rq.nesting import Json, from_json
from rq.replies import TransactionView
from rq.web import forms
from rq.web.answers import say, say_json
from rq.web.messages import check_dest
from rq.web.routes import Routes
from rq.web.site import Site

BODY = forms.REQUEST
_JSON = ("application/json",)
_LINES = ("application/x-ndjson", "application/jsonl")
_PLACE = "/api/v1/queues/{name}/txn"


def add_routes(routes: Routes, site: Site) -> None:
    """Add the routes of transactions."""
    transactions = Transactions(site)
    routes.get(_PLACE, transactions.list, Role.VIEWER)
    routes.post(_PLACE, transactions.open, Role.PRODUCER)
    routes.get(_PLACE + "/{txn}", transactions.show, Role.VIEWER)
    routes.post(_PLACE + "/{txn}/messages", transactions.prepare, Role.PRODUCER)
    routes.post(_PLACE + "/{txn}/commit", transactions.commit, Role.PRODUCER)
    routes.post(_PLACE + "/{txn}/abort", transactions.abort, Role.PRODUCER)
    routes.post("/q/{name}/txn/{txn}", transactions.change, Role.PRODUCER)


class Transactions:
    """The transactions of a queue."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def list(self, req: Request, resp: Response, name: str) -> None:
        say_json(resp, {"transactions": await self._ask(name, "list_txns", {})})

    async def open(self, req: Request, resp: Response, name: str) -> None:
        body = await _object(req)
        wanted = {key: body.get(key) for key in ("key", "ttl")}
        say_json(resp, await self._ask(name, "open_txn", wanted))

    async def show(self, req: Request, resp: Response, name: str, txn: str) -> None:
        say_json(resp, await self._ask(name, "show_txn", {"txn": txn}))

    async def prepare(self, req: Request, resp: Response, name: str, txn: str) -> None:
        messages = await _messages(req)
        for fields in messages:
            check_dest(req, name, fields if isinstance(fields, dict) else {})
        request = {"txn": txn, "messages": messages}
        say_json(resp, {"ids": await self._ask(name, "prepare_txn", request)})

    async def commit(self, req: Request, resp: Response, name: str, txn: str) -> None:
        request = {"txn": txn, "ids": (await _object(req)).get("ids")}
        say_json(resp, await self._ask(name, "commit_txn", request))

    async def abort(self, req: Request, resp: Response, name: str, txn: str) -> None:
        await _read(req)
        say_json(resp, await self._ask(name, "abort_txn", {"txn": txn}))

    async def change(self, req: Request, resp: Response, name: str, txn: str) -> None:
        """Abort one from its page."""
        form = await forms.read(req)
        if form.get("_method") != "abort":
            raise falcon.HTTPBadRequest(description="_method is not abort")
        reply = await self._site.owners.ask(name, "abort_txn", {"txn": txn})
        here = f"/q/{name}/txn"
        say(self._site, req, resp, form, reply, here, f"transaction {txn} is aborted")

    async def _ask(
        self, name: str, command: str, request: Mapping[str, object]
    ) -> Json:
        return await self._site.owners.demand(name, command, request)


class TransactionRow(TransactionView, total=False):
    """A transaction as the pages show it."""

    opened: float  # epoch seconds


def listed(view: TransactionView) -> TransactionRow:
    """Return a transaction with when it was opened."""
    opened = names.created(view["txn"])
    return cast(TransactionRow, {"key": None, "ids": [], **view, "opened": opened})


async def _read(req: Request, *kinds: str) -> bytes:
    """Return the body of a request, whole; 400, 411, 413 or 415 for what is none."""
    length = req.content_length or 0
    if length > BODY:
        raise falcon.HTTPContentTooLarge(
            description=f"A request is at most {BODY} bytes; send the messages in "
            "several, of the same transaction."
        )
    if req.get_header("Transfer-Encoding"):
        raise falcon.HTTPLengthRequired(
            description="A request needs its Content-Length, so that half of it is none."
        )
    kind = (req.content_type or "").partition(";")[0].strip().lower()
    if kinds and length and kind not in kinds:
        raise falcon.HTTPUnsupportedMediaType(
            description=f"{kind or 'No Content-Type'} is not read here; send "
            f"{' or '.join(kinds)}."
        )
    data = await req.stream.read()
    if len(data) < length:
        raise falcon.HTTPBadRequest(
            description="The body is shorter than its Content-Length says."
        )
    return bytes(data)


async def _object(req: Request) -> Mapping[str, Json]:
    body = from_json(await _read(req, *_JSON) or b"{}", "the body")
    if not isinstance(body, dict):
        raise BadInput("the body is not a JSON object")
    return body


async def _messages(req: Request) -> list[Json]:
    """Return the messages in a body: one as JSON, or one a line."""
    data = await _read(req, *_JSON, *_LINES)
    if (req.content_type or "").startswith(_LINES):
        lines = enumerate(data.split(b"\n"), 1)
        return [from_json(line, f"line {at}") for at, line in lines if line.strip()]
    return [from_json(data, "the body")]
