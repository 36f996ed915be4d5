"""Many messages changed from their page; for programs: `api.bulks`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC
from typing import cast

import falcon
from falcon.asgi import Request, Response

from rq import moments
from rq.access.roles import Role
from rq.errors import BadInput
from rq.message.action import Door
from rq.message.actions import Word, at
from rq.nesting import Json
from rq.replies import BulkView
from rq.web import forms
from rq.web.answers import say
from rq.web.messages import check_move, who
from rq.web.routes import Routes
from rq.web.site import Site

FILTER = ("older", "cause", "text", "key", "param1", "param2", "param3", "param4")
STATES = ("que", "run", "err", "dismissed", "done", "relayed", "prep")
_ACTIONS = at(Door.BULK)


def add_routes(routes: Routes, site: Site) -> None:
    """Add the actions of the page of many messages."""
    bulks = Bulks(site)
    routes.post("/q/{name}/bulk", bulks.begin, Role.OPERATOR)
    routes.post("/q/{name}/bulk/{bulk}", bulks.change, Role.OPERATOR)


class Bulks:
    """What is done to many messages of a queue."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def begin(self, req: Request, resp: Response, name: str) -> None:
        """Do one thing to all messages that match now."""
        form = await forms.read(req)
        request = request_of(form.get, time.time())
        if request["action"] == Word.MOVE:
            check_move(req, name, str(request["to"]))
        reply = await self._site.owners.ask(name, "bulk", {**request, "who": who(req)})
        text = _begun(reply[-1]) if reply[0] == "ok" else ""
        say(self._site, req, resp, form, reply, f"/q/{name}/bulk", text)

    async def change(self, req: Request, resp: Response, name: str, bulk: str) -> None:
        """End one that is at work."""
        form = await forms.read(req)
        if form.get("_method") != "cancel":
            raise falcon.HTTPBadRequest(description="_method is not cancel")
        reply = await self._site.owners.ask(name, "cancel_bulk", {"bulk": bulk})
        text = "it is ended; what it has changed stays so"
        say(self._site, req, resp, form, reply, f"/q/{name}/bulk", text)


def _begun(view: object) -> str:
    number = cast(BulkView, view)["messages"]
    return f"begun with {number:,} message{'' if number == 1 else 's'}"


def request_of(get: Callable[[str], str], now: float) -> dict[str, Json]:
    """Return what the fields of a form ask for: blank ones are not set. A due may be
    said as people say it, in UTC unless a zone is named."""
    wanted: dict[str, Json] = {"state": get("state")}
    wanted.update({name: get(name) for name in FILTER if get(name)})
    if counted := get("before"):
        wanted["before"] = _counted(counted, now, str(wanted.pop("older", "")))
    action, to = _ACTIONS.get(get("action")), get("to").strip()
    request: dict[str, Json] = {"action": get("action"), "filter": wanted}
    for takes in action.takes if action else ():
        request["to"] = takes.said(to, now, UTC)
    return request


def _counted(text: str, now: float, older: str) -> float:
    """Return the moment before which a message came into its state: it was counted on the
    page that was sent, and is as old as was asked for."""
    try:
        counted = float(text)
    except ValueError:
        counted = math.nan
    if not math.isfinite(counted):
        raise BadInput(f"before is {text!r:.40}, not seconds since the epoch")
    return min(counted, now - moments.duration(older)) if older else counted
