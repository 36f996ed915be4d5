"""The operations of queues: how one is, its pause, and whom it tells how it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, TypedDict, cast

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.config import secrets
from rq.config.admin import pause_of
from rq.kinds import Kind
from rq.message import waits
from rq.message.table import LATEST
from rq.replies import Detail, NoticesView, PauseView
from rq.rpc import client
from rq.web import views
from rq.web.answers import sees_secrets
from rq.web.api.operation import OF_OWNERS, Operation
from rq.web.api.shapes import Limits
from rq.web.deeds import OF_QUEUE
from rq.web.messages import who
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


class Pause(TypedDict, total=False):
    """How a queue is paused."""

    why: Annotated[str, "shown to all; at most 500 characters"]
    until: Annotated[
        float | None,
        Limits(least=0, most=LATEST),
        "epoch seconds; it goes on by itself",
    ]


class Paused(TypedDict):
    """Whether a queue is paused, and how."""

    name: str
    paused: PauseView | None


async def pause_queue(site: Site, req: Request, body: Pause, name: str) -> Paused:
    about = {**body, "queue": name, "who": who(req)}
    client.demanded(await site.owners.supervisor("pause_queue", about))
    return await site.pools.file(_paused, site, name)


async def resume_queue(site: Site, req: Request, body: None, name: str) -> Paused:
    client.demanded(await site.owners.supervisor("resume_queue", name))
    return await site.pools.file(_paused, site, name)


def _paused(site: Site, name: str) -> Paused:
    pause = pause_of(site.root, name)
    view = None if pause is None else waits.pause_view(**asdict(pause))
    return {"name": name, "paused": view}


# ---- whom a queue tells how it goes


class Tested(TypedDict):
    """Whom a test notice goes to."""

    whom: Annotated[list[str], "mail:…, a URL, queue:NAME"]


async def list_notices(site: Site, req: Request, body: None, name: str) -> NoticesView:
    view = await views.notices(site.owners, name)
    if not sees_secrets(req):
        for row in view["tells"]:
            row["whom"] = secrets.hosts_only(row["whom"])
    return view


async def test_notice(site: Site, req: Request, body: None, name: str) -> Tested:
    whom = cast(list[str], await site.owners.demand(name, "test_notice"))
    if not sees_secrets(req):
        whom = secrets.hosts_only(whom)
    return {"whom": whom}


_NOTICES = "/queues/{name}/notices"
_OF_PAUSE = (*OF_OWNERS, Kind.REFUSED)
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
    Operation(
        operation_id="pauseQueue",
        method="POST",
        path="/queues/{name}/pause",
        role=Role.OPERATOR,
        summary=OF_QUEUE["pause"].about,
        request=Pause,
        reply=Paused,
        failures=_OF_PAUSE,
        handler=pause_queue,
    ),
    Operation(
        operation_id="resumeQueue",
        method="POST",
        path="/queues/{name}/resume",
        role=Role.OPERATOR,
        summary=OF_QUEUE["resume"].about,
        request=None,
        reply=Paused,
        failures=_OF_PAUSE,
        handler=resume_queue,
    ),
    Operation(
        operation_id="listNotices",
        method="GET",
        path=_NOTICES,
        role=Role.VIEWER,
        summary="Show whom a queue tells how it goes, and what it told last.",
        request=None,
        reply=NoticesView,
        failures=OF_OWNERS,
        handler=list_notices,
    ),
    Operation(
        operation_id="testNotice",
        method="POST",
        path=f"{_NOTICES}/test",
        role=Role.OPERATOR,
        summary="Send a notice now to all whom the queue tells of something.",
        request=None,
        reply=Tested,
        failures=(*OF_OWNERS, Kind.WRONG_STATE),
        handler=test_notice,
    ),
)
