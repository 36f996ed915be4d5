"""The operations of flows: messages that wait for each other, sent at once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, TypedDict, cast

from falcon.asgi import Request

from rq.access import attempt_tokens
from rq.access.roles import Role
from rq.builtin.flow import deeds
from rq.builtin.flow.door import Sent
from rq.flow import plan as plans
from rq.flow.plan import LONGEST_KEY, LONGEST_NAME, MOST_NODES
from rq.kinds import Kind
from rq.message import table as fields
from rq.replies.flow import FlowRow, FlowView
from rq.web import flows
from rq.web.api.message_shape import kind_of
from rq.web.api.messages import KEY, LOCATION, Waiting, key_of
from rq.web.api.operation import OF_OWNERS, PREFIX, Answer, Operation
from rq.web.api.shapes import Limits, with_fields
from rq.web.routes import Own
from rq.web.site import Site

PLACE = "/flows"
MOST_LISTED = 100
LARGEST = 32 * 1024 * 1024  # bytes of a flow's plan
_AFTER = "names of messages of this flow that it waits for; QUEUE/ID of others"


@with_fields(
    {
        row.name: kind_of(row)
        for row in fields.ROWS
        if row.is_sent and row.in_api and row.name not in ("dest", "after")
    }
)
class NewNode(TypedDict, total=False):
    """A message of a flow, with a name that others wait for."""

    name: Annotated[str, Limits(shortest=1, longest=LONGEST_NAME), plans.NAME_RULE]
    dest: Annotated[str, "its queue, or the URL of one elsewhere"]
    after: Annotated[list[str], _AFTER]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFlow:
    """A flow that is to be sent."""

    # `plans.parse` reads them, so that each door refuses them in the same words.
    messages: Annotated[list[NewNode], Limits(longest=MOST_NODES, is_read=False)]
    name: Annotated[str | None, Limits(longest=LONGEST_NAME), "for people"] = None
    key: Annotated[
        str | None, Limits(shortest=1, longest=LONGEST_KEY), "as Idempotency-Key"
    ] = None
    post_run_webhook: Annotated[
        list[str] | None, "URLs that are told when all of it has ended"
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FromNode:
    """Where a flow is begun from again."""

    from_: Annotated[
        str, Limits(longest=LONGEST_NAME), "a message of it; all, if it is absent"
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """What of a flow runs again."""

    cancelled: Annotated[bool, "what was cancelled while it ran, too"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsQuery:
    """How many flows are listed."""

    limit: Annotated[int, Limits(least=1, most=MOST_LISTED)] = 20


class SentFlow(TypedDict):
    """A flow that was accepted."""

    msg_id: Annotated[str, "of the message of the queue `flow` that sends it"]
    url: str


class Flows(TypedDict):
    """Flows, the newest first."""

    flows: list[FlowRow]


class ChangedFlow(TypedDict):
    """What became of the messages of a flow."""

    changed: int
    failures: list[str]
    left: Annotated[int, "messages that were cancelled, and that stay so"]


async def send(site: Site, req: Request, body: NewFlow) -> Answer:
    key = key_of(req, body.key)
    value = {
        "messages": body.messages,
        "name": body.name,
        "key": key,
        plans.WEBHOOKS: body.post_run_webhook,
    }
    works_on = attempt_tokens.message_of(req.context.principal)
    plan = await site.pools.file(plans.parse, value, works_on)
    return _sent(site, await flows.send(site, req, plan))


def _sent(site: Site, sent: Sent) -> Answer:
    place = f"{PLACE}/{sent.msg_id}"
    value: SentFlow = {
        "msg_id": sent.msg_id,
        "url": site.config.base_url + place.removeprefix("/"),
    }
    headers = {"Location": site.url(f"{PREFIX}{place}")}
    return Answer(value=value, headers=headers, status=200 if sent.stood else 0)


async def list_flows(site: Site, req: Request, body: FlowsQuery) -> Flows:
    return {"flows": await flows.listed(site, req, body.limit)}


async def get(site: Site, req: Request, body: Waiting, flow: str) -> FlowView:
    return await flows.show(site, req, flow, body.wait)


async def rerun(site: Site, req: Request, body: FromNode, flow: str) -> Answer:
    return _sent(site, await flows.rerun(site, req, flow, body.from_))


async def retry(site: Site, req: Request, body: Retry, flow: str) -> ChangedFlow:
    deed = functools.partial(deeds.retry, cancelled=body.cancelled)
    done = await flows.change(site, req, flow, deed)
    return cast(ChangedFlow, flows.as_json(done))


async def cancel(site: Site, req: Request, body: None, flow: str) -> ChangedFlow:
    done = await flows.change(site, req, flow, deeds.cancel)
    return cast(ChangedFlow, flows.as_json(done))


_OF_ONE = (*OF_OWNERS, Kind.NO_SUCH_MESSAGE)
_OF_NEW = (*_OF_ONE, Kind.TOO_LARGE, Kind.NO_ROOM, Kind.NOT_WHOLE)
ROWS = (
    Operation(
        operation_id="sendFlow",
        method="POST",
        path=PLACE,
        role=Role.PRODUCER,
        summary="Send messages of which some wait for others: all of them, or none.",
        request=NewFlow,
        reply=SentFlow,
        failures=_OF_NEW,
        handler=send,
        status=201,
        other_status=200,
        headers=(KEY,),
        reply_headers=(LOCATION,),
        shared=True,
        own=Own.LIST,
        longest=LARGEST,
    ),
    Operation(
        operation_id="listFlows",
        method="GET",
        path=PLACE,
        role=Role.VIEWER,
        summary="List flows, the newest first, and how each stands.",
        request=FlowsQuery,
        reply=Flows,
        failures=OF_OWNERS,
        handler=list_flows,
        shared=True,
        own=Own.LIST,
    ),
    Operation(
        operation_id="getFlow",
        method="GET",
        path=f"{PLACE}/{{flow}}",
        role=Role.VIEWER,
        summary="Show how a flow and each of its messages stands; with `wait`, once "
        "nothing of it goes on.",
        request=Waiting,
        reply=FlowView,
        failures=_OF_ONE,
        handler=get,
        shared=True,
        own=Own.LIST,
    ),
    Operation(
        operation_id="rerunFlow",
        method="POST",
        path=f"{PLACE}/{{flow}}/rerun",
        role=Role.PRODUCER,
        summary="Send a message of a flow and all after it again, as a new flow.",
        request=FromNode,
        reply=SentFlow,
        failures=(*_OF_NEW, Kind.WRONG_STATE),
        handler=rerun,
        status=201,
        reply_headers=(LOCATION,),
        shared=True,
        own=Own.LIST,
    ),
    Operation(
        operation_id="retryFlow",
        method="POST",
        path=f"{PLACE}/{{flow}}/retry",
        role=Role.OPERATOR,
        summary="Run what failed of a flow again; the rest goes on.",
        request=Retry,
        reply=ChangedFlow,
        failures=(*_OF_ONE, Kind.WRONG_STATE),
        handler=retry,
        shared=True,
    ),
    Operation(
        operation_id="cancelFlow",
        method="POST",
        path=f"{PLACE}/{{flow}}/cancel",
        role=Role.OPERATOR,
        summary="End all of a flow that has not ended.",
        request=None,
        reply=ChangedFlow,
        failures=_OF_ONE,
        handler=cancel,
        shared=True,
        own=Own.LIST,
    ),
)
