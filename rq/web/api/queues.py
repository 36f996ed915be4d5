"""The operations that look at queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.config import secrets
from rq.kinds import Kind
from rq.replies import Detail
from rq.web import views
from rq.web.answers import sees_secrets
from rq.web.api.operation import OF_OWNERS, Operation
from rq.web.site import Site


class QueueName(TypedDict):
    """A queue in a list."""

    name: str


class Queues(TypedDict):
    """All queues that whoever asks may ask of, in the order of their names."""

    queues: list[QueueName]


class Queue(TypedDict):
    """How a queue is, and its settings."""

    name: str
    detail: Detail
    config: Annotated[Mapping[str, object], "secrets are hidden from all but admins"]


async def list_queues(site: Site, req: Request, body: None) -> Queues:
    principal: Principal = req.context.principal
    names = [name for name in site.queue_names() if principal.sees(name)]
    return {"queues": [{"name": name} for name in names]}


async def get_queue(site: Site, req: Request, body: None, name: str) -> Queue:
    detail = await views.demand_detail(site.owners, name)
    config = await views.config(site.owners, name)
    if not sees_secrets(req):
        config = secrets.masked(config)
    return {"name": name, "detail": detail, "config": config}


ROWS = (
    Operation(
        operation_id="listQueues",
        method="GET",
        path="/queues",
        role=Role.VIEWER,
        summary="List the queues.",
        request=None,
        reply=Queues,
        failures=(Kind.CANNOT_READ,),
        handler=list_queues,
        shared=True,
    ),
    Operation(
        operation_id="getQueue",
        method="GET",
        path="/queues/{name}",
        role=Role.VIEWER,
        summary="Show how a queue is, how many messages it holds, and its settings.",
        request=None,
        reply=Queue,
        failures=OF_OWNERS,
        handler=get_queue,
    ),
)
