"""The operation that counts the messages of all queues in one request."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.errors import RQError
from rq.kinds import Kind
from rq.replies import Counts, Detail
from rq.web import views
from rq.web.api.operation import Operation
from rq.web.site import Site

_PATIENCE = 4.0  # seconds in which all have to answer


class QueueCounts(TypedDict):
    """How many messages a queue holds; without `counts` its process did not say it."""

    name: str
    status: Annotated[str, "UP, PAUSED, DOWN, …; as getQueue has it"]
    counts: NotRequired[Counts]
    oldest_due_age: NotRequired[
        Annotated[float | None, "seconds that the first has been due; null: none is"]
    ]
    kind: NotRequired[Annotated[str, "why it is not known"]]
    text: NotRequired[str]


class AllCounts(TypedDict):
    """The queues that whoever asks may see, in the order of their names."""

    queues: list[QueueCounts]


async def count(site: Site, req: Request, body: None) -> AllCounts:
    principal: Principal = req.context.principal
    names = [name for name in site.queue_names() if principal.sees(name)]
    details = await views.details(site.owners, names, _PATIENCE)
    return {"queues": list(map(_row, names, details))}


def _row(name: str, detail: Detail | RQError) -> QueueCounts:
    if isinstance(detail, RQError):
        text = str(detail)
        return {"name": name, "status": "", "kind": str(detail.kind), "text": text}
    row: QueueCounts = {"name": name, "status": detail["status"]}
    if "counts" in detail:  # an owner that is down says next to nothing
        row["counts"] = detail["counts"]
        row["oldest_due_age"] = detail.get("oldest_due_age")
    return row


ROWS = (
    Operation(
        operation_id="countMessages",
        method="GET",
        path="/counts",
        role=Role.VIEWER,
        summary="Count the messages of all queues by their states.",
        request=None,
        reply=AllCounts,
        failures=(Kind.CANNOT_READ,),
        handler=count,
        shared=True,
    ),
)
