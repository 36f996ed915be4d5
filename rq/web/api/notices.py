"""The operations of notices: whom a queue tells how it goes."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

from falcon.asgi import Request

from rq.access.roles import Role
from rq.config import secrets
from rq.kinds import Kind
from rq.replies import NoticesView
from rq.web import views
from rq.web.answers import sees_secrets
from rq.web.api.operation import OF_OWNERS, Operation
from rq.web.site import Site

PLACE = "/queues/{name}/notices"


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


ROWS = (
    Operation(
        operation_id="listNotices",
        method="GET",
        path=PLACE,
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
        path=f"{PLACE}/test",
        role=Role.OPERATOR,
        summary="Send a notice now to all whom the queue tells of something.",
        request=None,
        reply=Tested,
        failures=(*OF_OWNERS, Kind.WRONG_STATE),
        handler=test_notice,
    ),
)
