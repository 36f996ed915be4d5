"""Transactions over HTTP: JSON in, JSON out; any client may use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import falcon
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Role
from rq.errors import BadInput
from rq.nesting import from_json
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
    found = Transactions(site)
    routes.get(_PLACE, found.list, Role.VIEWER)
    routes.post(_PLACE, found.open, Role.PRODUCER)
    routes.get(_PLACE + "/{txn}", found.show, Role.VIEWER)
    routes.post(_PLACE + "/{txn}/messages", found.prepare, Role.PRODUCER)
    routes.post(_PLACE + "/{txn}/commit", found.commit, Role.PRODUCER)
    routes.post(_PLACE + "/{txn}/abort", found.abort, Role.PRODUCER)
    routes.post("/q/{name}/txn/{txn}", found.change, Role.PRODUCER)


class Transactions:
    """The transactions of a queue."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def list(self, req: Request, resp: Response, name: str) -> None:
        found = await self._ask(name, "list_txns", {})
        say_json(resp, {"transactions": found})

    async def open(self, req: Request, resp: Response, name: str) -> None:
        asked = await _object(req)
        wanted = {key: asked.get(key) for key in ("key", "ttl")}
        say_json(resp, await self._ask(name, "open_txn", wanted))

    async def show(self, req: Request, resp: Response, name: str, txn: str) -> None:
        say_json(resp, await self._ask(name, "show_txn", {"txn": txn}))

    async def prepare(self, req: Request, resp: Response, name: str, txn: str) -> None:
        messages = await _messages(req)
        for fields in messages:
            check_dest(req, name, fields if isinstance(fields, dict) else {})
        asked = {"txn": txn, "messages": messages}
        say_json(resp, {"ids": await self._ask(name, "prepare_txn", asked)})

    async def commit(self, req: Request, resp: Response, name: str, txn: str) -> None:
        asked = {"txn": txn, "ids": (await _object(req)).get("ids")}
        say_json(resp, await self._ask(name, "commit_txn", asked))

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

    async def _ask(self, name: str, command: str, asked: dict[str, Any]) -> Any:
        return await self._site.owners.demand(name, command, asked)


def listed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of a transaction, and when it was opened: epoch seconds."""
    return {"key": None, "ids": [], **told, "opened": names.created(told["txn"])}


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
        raise falcon.HTTPBadRequest(description="The body ends before its length.")
    return bytes(data)


async def _object(req: Request) -> dict[str, Any]:
    found = from_json(await _read(req, *_JSON) or b"{}", "the body")
    if not isinstance(found, dict):
        raise BadInput("the body is not a JSON object")
    return found


async def _messages(req: Request) -> list[Any]:
    """Return the messages in a body: one as JSON, or one a line."""
    data = await _read(req, *_JSON, *_LINES)
    if (req.content_type or "").startswith(_LINES):
        lines = enumerate(data.split(b"\n"), 1)
        return [from_json(one, f"line {at}") for at, one in lines if one.strip()]
    return [from_json(data, "the body")]
