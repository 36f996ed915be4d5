"""The operations that ask the index: what ran, what failed alike, where a message is."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from falcon.asgi import Request

from rq.access.roles import Role
from rq.errors import BadInput
from rq.index import doors
from rq.index.doors import FailuresView, HitsView, RunsView
from rq.kinds import Kind
from rq.web import indexed
from rq.web.api.operation import Operation
from rq.web.api.shapes import Limits
from rq.web.rights import only_by
from rq.web.routes import Own
from rq.web.site import Site

_FAILURES = (
    Kind.BAD_INPUT,
    Kind.NO_SUCH_QUEUE,
    Kind.REFUSED,
    Kind.UNREACHABLE,
    Kind.BUSY,
)
_Moment = Annotated[
    str | None,
    Limits(longest=40),
    "18:00 (the last one, UTC), an age as 2h, epoch seconds or ISO 8601",
]
_Name = Annotated[str | None, Limits(longest=255)]
_Sort = Annotated[
    str | None, Limits(longest=40), "a field; -FIELD: the largest comes first"
]
_Flag = Annotated[Literal["0", "1"] | None, "1: only those"]
_Limit = Annotated[int | None, Limits(least=1, most=doors.MOST)]
_Offset = Annotated[int | None, Limits(least=0, most=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsQuery:
    """Which attempts are meant; without a field, those since yesterday 18:00 (UTC)."""

    since: _Moment = None
    until: _Moment = None
    queue: _Name = None
    timer: _Name = None
    by: Annotated[str | None, Limits(longest=255), "who has sent the message"] = None
    failed: _Flag = None
    slow: Annotated[
        Literal["0", "1"] | None, "1: longer than 95 % of their queue's"
    ] = None
    sort: _Sort = None
    limit: _Limit = None
    offset: _Offset = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailuresQuery:
    """Of which queue; all that may be seen without one."""

    queue: _Name = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What is looked for: each word is a part, of three characters or more, of id, params,
    text, cause, unique_key or src. A sender finds what it has sent, also without words."""

    words: Annotated[str, Limits(longest=400)] = ""
    by: Annotated[str | None, Limits(longest=255), "who has sent it"] = None
    queue: _Name = None
    state: Annotated[str | None, Limits(longest=20)] = None
    since: _Moment = None
    sort: _Sort = None
    limit: _Limit = None
    offset: _Offset = None


def _texts(body: RunsQuery | SearchQuery) -> dict[str, str]:
    fields = asdict(body)
    return {name: str(value) for name, value in fields.items() if value is not None}


async def list_runs(site: Site, req: Request, body: RunsQuery) -> RunsView:
    return await indexed.runs(site, req, _texts(body), time.time())


async def list_failures(site: Site, req: Request, body: FailuresQuery) -> FailuresView:
    groups, fresh = await indexed.answer(
        site, req, lambda index, visible: index.failures(body.queue, visible)
    )
    view = doors.failures_view(groups, fresh, time.time())
    return {**view, "failures": indexed.for_reader(req, view["failures"])}


async def search(site: Site, req: Request, body: SearchQuery) -> HitsView:
    now = time.time()
    texts = _texts(body)
    if own := only_by(req):
        texts["by"] = own
    elif not (texts["words"].strip() or body.by):
        raise BadInput("say words, or by: who has sent them")
    question = doors.search_question(texts, now)
    hits, fresh = await indexed.answer(
        site, req, lambda index, visible: index.search(question, visible)
    )
    view = doors.hits_view(hits, fresh, now)
    return {**view, "messages": indexed.for_reader(req, view["messages"])}


ROWS = (
    Operation(
        operation_id="listRuns",
        method="GET",
        path="/runs",
        role=Role.VIEWER,
        summary="List what ran in a span of time, of all queues.",
        request=RunsQuery,
        reply=RunsView,
        failures=_FAILURES,
        handler=list_runs,
        shared=True,
    ),
    Operation(
        operation_id="listFailures",
        method="GET",
        path="/failures",
        role=Role.VIEWER,
        summary="List the messages that have failed, by what they have in common.",
        request=FailuresQuery,
        reply=FailuresView,
        failures=_FAILURES,
        handler=list_failures,
        shared=True,
    ),
    Operation(
        operation_id="search",
        method="GET",
        path="/search",
        role=Role.VIEWER,
        summary="Find messages of all queues by words.",
        request=SearchQuery,
        reply=HitsView,
        failures=_FAILURES,
        handler=search,
        shared=True,
        own=Own.LIST,
    ),
)
