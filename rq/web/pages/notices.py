"""Whom a queue tells how it goes, and what it told last."""

from __future__ import annotations

import asyncio
from typing import TypedDict, cast

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.config import secrets
from rq.errors import RQError
from rq.replies import MessageRow, TellsRow
from rq.web import forms, reading, views
from rq.web.answers import failure_in, say
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.states import State

_NOTICE = "notice"
_LOOKED_AT = 100  # messages of each state in which those of a queue are looked for
_LAST = 5  # that are shown
_STATES = (State.RUN, State.QUE, State.ERR, State.DONE)


class Notices(TypedDict):
    """What the page shows; empty where the queue tells no one."""

    tells: list[TellsRow]
    last: list[MessageRow]


async def of_queue(site: Site, name: str) -> Notices:
    """Return whom a queue that answers tells, and its last notices."""
    try:
        view = await views.notices(site.owners, name)
    except RQError:  # its owner has gone by now
        return {"tells": [], "last": []}
    if not view["tells"]:
        return {"tells": [], "last": []}
    tells = [
        cast(TellsRow, {**row, "whom": secrets.hosts_only(row["whom"])})
        for row in view["tells"]
    ]
    return {"tells": tells, "last": await _last(site, name)}


async def _last(site: Site, name: str) -> list[MessageRow]:
    if not site.root.queue(_NOTICE).config.is_file():
        return []
    lists = await asyncio.gather(*(_rows(site, state) for state in _STATES))
    rows = [row for rows in lists for row in rows if row.get("param2") == name]
    newest = sorted(rows, key=lambda row: row["msg_id"], reverse=True)[:_LAST]
    return [
        cast(MessageRow, {**secrets.below_admin(row, _NOTICE), "text": _text(row)})
        for row in newest
    ]


async def _rows(site: Site, state: State) -> list[MessageRow]:
    try:
        return await reading.rows(site, _NOTICE, state, _LOOKED_AT)
    except RQError:
        return []


def _text(row: MessageRow) -> str:
    return secrets.host_only(str(row.get("status") or "").partition(" - ")[2])


def add_routes(routes: Routes, site: Site) -> None:
    """Add what the panel on a queue's page sends: a test now."""

    async def test(req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        forms.method(form, ("test",))
        reply = await site.owners.ask(name, "test_notice")
        text = ""
        if failure_in(reply) is None:
            whom = cast(list[str], reply[1])
            text = f"a test notice is on its way to {', '.join(whom)}"
        say(site, req, resp, form, reply, f"/q/{name}", text)

    routes.post("/q/{name}/notices", test, Role.OPERATOR)
