"""The operations that hand out leases, and list them."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import is_dataclass
from typing import cast

from falcon.asgi import Request

from rq.access.roles import Role
from rq.kinds import Kind
from rq.message import JsonObject
from rq.replies import GrantsView, LeasesView
from rq.rpc.lines.owners import ClientGone
from rq.web import rights, views
from rq.web.api.lease_shapes import News, Wanted, Which
from rq.web.api.operation import OF_OWNERS, Operation
from rq.web.api.shapes import fields_of
from rq.web.connection import LOST, TAKE_BACK
from rq.web.messages import who
from rq.web.site import Site
from rq.words.nesting import Json

PLACE = "/queues/{name}/leases"
_HUNG_UP = "its worker hung up before it was answered"


async def lease(site: Site, req: Request, body: Wanted, name: str) -> GrantsView:
    """Lease what is due, perhaps later; nothing to a client that has gone meanwhile: its
    connection gives back what it cannot hand over any more."""
    gone: asyncio.Event = req.scope.get(LOST) or asyncio.Event()
    try:
        reply = await _ask(site, req, body, name, gone)
    except ClientGone:
        about: JsonObject = {"base_url": site.config.base_url, "env": site.config.env}
        return cast(GrantsView, {"leases": [], "why": _HUNG_UP, **about})
    if tokens := [lease["token"] for lease in reply["leases"]]:
        request = {"tokens": tokens, "unheard": True}
        release = functools.partial(site.owners.demand, name, "release", request)
        req.scope.get(TAKE_BACK, []).append(release)
    return reply


async def _ask(
    site: Site, req: Request, body: Wanted, name: str, gone: asyncio.Event
) -> GrantsView:
    request: JsonObject = {**given(body), "who": who(req)}
    if body.wait:
        reply = await site.owners.wait(name, "lease", request, body.wait, gone)
    else:
        reply = await site.owners.demand(name, "lease", request)
    return cast(GrantsView, reply)


def given(body: object) -> dict[str, Json]:
    """Return what a request says, without what it leaves out."""
    said: dict[str, Json] = {}
    for field in fields_of(cast(type, type(body))):
        value: Json = getattr(body, field.attribute)
        if value is None or value in ("", [], {}):
            continue
        said[field.name] = (
            [_plain(part) for part in value] if isinstance(value, list) else value
        )
    return said


def _plain(part: object) -> Json:
    return given(part) if is_dataclass(part) else cast(Json, part)


async def list_leases(
    site: Site, req: Request, body: Which, name: str
) -> LeasesView | News:
    if body.wait is None:
        return await views.leases(site.owners, name, given(body))
    rights.demand(req, Role.WORKER)
    wanted = Wanted(count=0, wait=body.wait, label=body.label)
    reply = await lease(site, req, wanted, name)
    return {"cancels": reply.get("cancels", {}), "why": reply["why"]}


ROWS = (
    Operation(
        operation_id="lease",
        method="POST",
        path=PLACE,
        role=Role.WORKER,
        summary="Lease messages that are due, or wait until one is.",
        request=Wanted,
        reply=GrantsView,
        failures=(*OF_OWNERS, Kind.WRONG_STATE, Kind.REFUSED, Kind.NO_ROOM),
        handler=lease,
    ),
    Operation(
        operation_id="listLeases",
        method="GET",
        path=PLACE,
        role=Role.VIEWER,
        summary="List the leases that are out, and who works; or wait for cancellations.",
        request=Which,
        reply=LeasesView | News,
        failures=(*OF_OWNERS, Kind.WRONG_STATE),
        handler=list_leases,
    ),
)
