"""Flows, of what a reader may see: what pages and `/api/v1` show and do alike."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from falcon.asgi import Request

from rq import names
from rq.access.roles import Principal, Role
from rq.builtin.flow import deeds, door, look, record
from rq.builtin.flow.door import Sent
from rq.errors import (
    BadInput,
    BadMessage,
    NoSuchMessage,
    NotPermitted,
    OtherQueue,
    RQError,
)
from rq.flow import view
from rq.flow.plan import Plan
from rq.flow.view import Flow
from rq.kinds import Kind
from rq.message import fieldnames
from rq.replies.flow import FlowRow, FlowView
from rq.rpc.lines.owners import ClientGone
from rq.web import own, rights
from rq.web.connection import LOST
from rq.web.messages import check_dest, who
from rq.web.routes import Own, Right
from rq.web.site import Site
from rq.words.nesting import Json

_NONE = "there is no flow {}"
_SHARE = 4  # of the time of a look passes until the next
_SILENT = 0.5  # seconds until a queue that tells nothing is asked again


def sees(req: Request, flow: Flow) -> Callable[[str], bool]:
    """Return which queues of a flow the asker may see, of their own all; NoSuchMessage:
    none of them."""
    principal: Principal = req.context.principal
    if is_own(req, flow):
        return lambda queue: True
    if not _sees_some(principal, flow):
        raise NoSuchMessage(_NONE.format(flow.msg_id))
    return principal.sees


def is_own(req: Request, flow: Flow) -> bool:
    """Return whether the asker has sent a flow."""
    principal: Principal = req.context.principal
    return bool(flow.by) and flow.by == principal.user


def _sees_some(principal: Principal, flow: Flow) -> bool:
    queues = [*flow.plan.queues, record.QUEUE]
    return not principal.sees_own_alone and any(map(principal.sees, queues))


async def flow_of(site: Site, req: Request, msg_id: str) -> Flow:
    """Return what is known of a flow that the asker may look at."""
    try:
        short = names.msg_id(msg_id)
    except BadInput:
        raise NoSuchMessage(_NONE.format(f"{msg_id:.60}")) from None
    flow: Flow = await site.pools.file(look.flow_of, site.root, short)
    sees(req, flow)
    return flow


async def show(site: Site, req: Request, msg_id: str, wait: float = 0) -> FlowView:
    """Return what the asker is told of a flow; `wait`: once nothing of it goes on by
    itself, and after so many seconds at the latest."""
    flow = await flow_of(site, req, msg_id)
    gone: asyncio.Event = req.scope.get(LOST) or asyncio.Event()
    until = time.monotonic() + wait
    while (left := until - time.monotonic()) > 0 and flow.awaited and not gone.is_set():
        await _until_end(site, flow.awaited, left, gone)
        begun = time.monotonic()
        flow = await flow_of(site, req, msg_id)
        if flow.awaited:  # a look costs, and the messages may end one after the other
            await _pause(gone, min(until - begun, _SHARE * (time.monotonic() - begun)))
    return view.view(flow, sees(req, flow))


async def _until_end(
    site: Site, target: str, seconds: float, gone: asyncio.Event
) -> None:
    """Wait until a message has ended, or until its queue does not tell."""
    queue, _, msg_id = target.partition("/")
    request: dict[str, Json] = {"msg_id": msg_id, "wait": seconds}
    try:
        await site.owners.wait(queue, "await_end", request, seconds, gone)
    except ClientGone:
        return
    except RQError as error:
        if error.kind is Kind.BUSY:
            raise
        await _pause(gone, min(seconds, _SILENT))


async def _pause(gone: asyncio.Event, seconds: float) -> None:
    """Let time pass, until the client has gone."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(gone.wait(), max(0.0, seconds))


async def listed(site: Site, req: Request, limit: int) -> list[FlowRow]:
    """Return the newest flows of which the asker may see something."""
    rows = []
    for flow in await site.pools.file(look.newest, site.root, limit):
        with contextlib.suppress(NoSuchMessage):
            rows.append(view.row(flow, sees(req, flow)))
    return rows


async def send(site: Site, req: Request, plan: Plan) -> Sent:
    """Send a flow as the asker's, who may send each of its messages."""
    await check_rights(site, req, plan)
    principal: Principal = req.context.principal
    whose: dict[str, Json] = {
        fieldnames.BY: principal.user,
        fieldnames.PREPARER: principal.user,
    }
    if plan.key is not None:
        whose[fieldnames.KEY_OF] = principal.user
    sent: Sent = await site.pools.file(
        door.send, site.root, plan, whose, principal.sees
    )
    return sent


async def check_rights(site: Site, req: Request, plan: Plan) -> None:
    """Refuse a flow of which the asker may not send some message, or may not read one
    that it waits for."""
    principal: Principal = req.context.principal
    places = {(node.queue, node.dest): node.name for node in plan.nodes}
    for (queue, dest), name in places.items():
        try:
            right = Right(role=Role.PRODUCER, queue=queue, own=Own.SENDS)
            rights.check_right(principal, right, {})
            check_dest(req, queue, {"dest": dest})
        except (NotPermitted, OtherQueue) as error:
            raise type(error)(f"{name}: {error}") from None
    for node in plan.nodes:
        if node.others:
            fields = {"after": list(node.others)}
            try:
                await own.check_after(site, principal, node.queue, fields)
            except BadMessage as error:
                raise BadMessage(f"{node.name}: {error}") from None


async def change(
    site: Site, req: Request, msg_id: str, deed: Callable[..., deeds.Done]
) -> deeds.Done:
    """Do something to a flow as a whole, of which the asker may change each message: it
    is their own and only ended, or they operate each of its queues."""
    flow = await flow_of(site, req, msg_id)
    principal: Principal = req.context.principal
    if not (deed is deeds.cancel and is_own(req, flow)):
        _check_operates(req, principal, flow)
    done: deeds.Done = await site.pools.file(deed, site.root, flow, who(req))
    return done


def _check_operates(req: Request, principal: Principal, flow: Flow) -> None:
    rights.demand(req, Role.OPERATOR)
    if hidden := [name for name in flow.queues if not principal.sees(name)]:
        raise OtherQueue(
            f"{principal.name} may ask of {', '.join(principal.queues)}; this flow has "
            "messages in "
            + ("another queue" if len(hidden) == 1 else f"{len(hidden)} other queues")
        )


async def rerun(site: Site, req: Request, msg_id: str, start: str) -> Sent:
    """Send a message of a flow and all after it again, as the asker's."""
    flow = await flow_of(site, req, msg_id)
    return await send(site, req, deeds.part(flow, start))


def as_json(done: deeds.Done) -> Mapping[str, object]:
    return {
        "changed": done.changed,
        "failures": list(done.failures),
        "left": done.left,
    }
