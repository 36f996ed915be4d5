"""The operations of leases: handed out, listed; and by which their holders say how their
work goes, and ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import cast

from falcon import code_to_http_status
from falcon.asgi import Request

from rq import names
from rq.access.roles import Principal, Role
from rq.kinds import HEADER, URN, Kind
from rq.message import guarded
from rq.message.fields import JsonObject
from rq.relay.transfers import QUEUE as RELAY
from rq.replies import GrantsView, LeasesView, WordResult
from rq.rpc.lines.owners import ClientGone
from rq.web import rights, views
from rq.web.api.lease_shapes import (
    Finish,
    Finishes,
    News,
    Progress,
    Reason,
    Release,
    Renewal,
    Results,
    Tokens,
    Wanted,
    Which,
)
from rq.web.api.operation import (
    OF_OWNERS,
    Answer,
    Handler,
    Header,
    Media,
    Operation,
)
from rq.web.api.shapes import fields_of
from rq.web.connection import LOST, TAKE_BACK
from rq.web.messages import who
from rq.web.site import Site
from rq.web.statuses import STATUS_OF
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


# ---- what their holders say of them

OVER = (Kind.LEASE_OVER, Kind.LEASE_FORGOTTEN)
KIND = Header(name=HEADER, about="why the word was refused, if it was")


def answer_of(result: WordResult) -> Answer:
    """Return the answer to a word about one lease: its result, and if it was refused, the
    problem that this is."""
    if result["ok"]:
        return Answer(value=result)
    kind = Kind(result["kind"])
    status = STATUS_OF[kind]
    problem = {
        "type": f"{URN}{kind}",
        "title": code_to_http_status(status).partition(" ")[2],
        "status": status,
        "detail": result["text"],
    }
    value, headers = {**problem, **result}, {HEADER: kind}
    return Answer(value=value, status=status, headers=headers, media=Media.PROBLEM)


async def say(
    site: Site, req: Request, name: str, command: str, request: Mapping[str, Json]
) -> Results:
    """Ask a queue for a word about several leases."""
    about = {**request, "who": who(req)}
    return cast(Results, await site.owners.demand(name, command, about))


async def _end(
    site: Site, req: Request, name: str, finishes: Sequence[Mapping[str, Json]]
) -> Sequence[WordResult]:
    """End leases. Files that ends name are read by the owner, who begins nothing else of
    this line meanwhile: the words of other workers must not wait behind them."""
    if not any("files" in finish for finish in finishes):
        return (await say(site, req, name, "finish", {"finishes": finishes}))["results"]
    request = {"finishes": finishes, "who": who(req)}
    ended = await site.owners.demand_long(name, "finish", request)
    return cast(Results, ended)["results"]


async def say_one(
    site: Site, req: Request, name: str, command: str, request: Mapping[str, Json]
) -> WordResult:
    """Ask a queue for a word about one lease."""
    about = {**request, "who": who(req)}
    return cast(WordResult, await site.owners.demand(name, command, about))


async def start(site: Site, req: Request, body: Tokens, name: str) -> Results:
    return await say(site, req, name, "start", given(body))


async def renew(site: Site, req: Request, body: Renewal, name: str) -> Results:
    return await say(site, req, name, "renew", given(body))


async def release(site: Site, req: Request, body: Release, name: str) -> Results:
    return await say(site, req, name, "release", given(body))


async def release_one(
    site: Site, req: Request, body: Reason, name: str, token: str
) -> Answer:
    request = {"tokens": [token], **given(body)}
    return answer_of((await say(site, req, name, "release", request))["results"][0])


async def go_on(
    site: Site, req: Request, body: Progress, name: str, token: str
) -> Answer:
    """Take progress, and renew the lease."""
    if body.text is not None or body.fraction is not None:
        progress: dict[str, Json] = {
            "token": token,
            "text": body.text or "",
            "fraction": body.fraction,
        }
        result = await say_one(site, req, name, "progress", progress)
        if not result["ok"]:
            return answer_of(result)
    renewal: dict[str, Json] = {"tokens": [token]}
    if body.seconds is not None:
        renewal["seconds"] = body.seconds
    return answer_of((await say(site, req, name, "renew", renewal))["results"][0])


# ---- ends


async def finish(site: Site, req: Request, body: Finishes, name: str) -> Results:
    """End several leases; what goes to queues that are not theirs is refused by itself."""
    refused = [_why_not(req, end, end.token) for end in body.finishes]
    allowed = [
        given(end)
        for end, why in zip(body.finishes, refused, strict=True)
        if why is None
    ]
    ended: Sequence[WordResult] = ()
    if allowed:
        ended = await _end(site, req, name, allowed)
    rest = iter(ended)
    return {"results": [next(rest) if why is None else why for why in refused]}


async def finish_one(
    site: Site, req: Request, body: Finish, name: str, token: str
) -> Answer:
    if why := _why_not(req, body, token):
        return answer_of(why)
    finishes = [{**given(body), "token": token}]
    return answer_of((await _end(site, req, name, finishes))[0])


def _why_not(req: Request, finish: Finish, token: str) -> WordResult | None:
    """Return why a client may not end a lease so: what it sends goes to a queue to which
    they may not send. None: they may."""
    principal: Principal = req.context.principal
    forward = finish.dest if finish.word == "forward" else None
    for dest in (forward, *(dup.dest for dup in finish.dups)):
        if dest is not None and not _may_send(principal, dest):
            text = f"{principal.name} may not send to {dest:.80}"
            return {"token": token, "ok": False, "kind": Kind.OTHER_QUEUE, "text": text}
    return None


def _may_send(principal: Principal, dest: str) -> bool:
    """A client that is limited to some queues sends to none of another host, as in `check_dest`:
    the relay would carry a message to any address."""
    is_elsewhere = names.is_remote(dest)
    if is_elsewhere and principal.is_limited:
        return False
    if guarded.named_in(dest) and not (is_elsewhere and principal.may(Role.OPERATOR)):
        return False
    return principal.may_send(RELAY if is_elsewhere else dest)


def _row(
    operation_id: str, place: str, request: type, handler: Handler, summary: str
) -> Operation:
    """Return the row of a word about several leases, each of which has its result; or of
    one about a single lease, which fails if that is over. `place`: its method, and its
    path below the leases."""
    method, path = place.split()
    is_about_one = "{token}" in path
    return Operation(
        operation_id=operation_id,
        method=method,
        path=f"{PLACE}{path}",
        role=Role.WORKER,
        summary=summary,
        request=request,
        reply=WordResult if is_about_one else Results,
        failures=(*OF_OWNERS, *OVER) if is_about_one else OF_OWNERS,
        handler=handler,
        reply_headers=(KIND,) if is_about_one else (),
    )


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
    _row(
        "startLeases",
        "POST /start",
        Tokens,
        start,
        "Confirm that leases have arrived and that work on them begins.",
    ),
    _row("renewLeases", "POST /renew", Renewal, renew, "Let leases go on."),
    _row(
        "finishLeases",
        "POST /finish",
        Finishes,
        finish,
        "Say how the work on messages has ended.",
    ),
    _row(
        "releaseLeases",
        "POST /release",
        Release,
        release,
        "Give messages back that nobody works on.",
    ),
    _row(
        "goOn",
        "PATCH /{token}",
        Progress,
        go_on,
        "Let a lease go on, and say how far its work is.",
    ),
    _row(
        "finishLease",
        "POST /{token}/finish",
        Finish,
        finish_one,
        "Say how the work on a message has ended.",
    ),
    _row(
        "releaseLease",
        "DELETE /{token}",
        Reason,
        release_one,
        "Give a message back that nobody works on.",
    ),
)
