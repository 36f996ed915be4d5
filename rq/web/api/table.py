"""All rows of `/api/v1`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import falcon
import orjson
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.web import downloads
from rq.web.answers import for_asker
from rq.web.api import (
    actions,
    attachments,
    bulk,
    bulks,
    counting,
    defining,
    events,
    flows,
    index,
    lease_bytes,
    leases,
    messages,
    openapi,
    queues,
    requests,
    timers,
    transactions,
    verdict,
)
from rq.web.api.operation import PREFIX, Answer, Operation
from rq.web.routes import Handler, Own, Right, Routes
from rq.web.site import Site


async def get_document(site: Site, req: Request, body: None) -> Answer:
    return Answer(data=_document(site.prefix))


@functools.cache
def _document(prefix: str) -> bytes:
    return orjson.dumps(openapi.document(ROWS, prefix))


ROWS: tuple[Operation, ...] = (
    Operation(
        operation_id="getDocument",
        method="GET",
        path="/openapi.json",
        role=Role.VIEWER,
        summary="Show this document.",
        request=None,
        reply=Mapping[str, object],
        failures=(),
        handler=get_document,
        shared=True,
        own=Own.LIST,
    ),
    *queues.ROWS,
    *counting.ROWS,
    *defining.ROWS,
    *messages.ROWS,
    *attachments.ROWS,
    *bulk.ROWS,
    *actions.ROWS,
    *bulks.ROWS,
    *transactions.ROWS,
    *flows.ROWS,
    *leases.ROWS,
    *lease_bytes.ROWS,
    *timers.ROWS,
    *verdict.ROWS,
    *index.ROWS,
    *events.ROWS,
)


def add_routes(routes: Routes, site: Site) -> None:
    """Add the route of every row."""
    install(routes, site, ROWS)


# ---- giving the rows to the table of routes


def install(routes: Routes, site: Site, rows: Sequence[Operation]) -> None:
    """Add the route of each row; ValueError when two have the same operation_id."""
    ids = [row.operation_id for row in rows]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise ValueError(f"two rows are called {', '.join(sorted(twice))}")
    for row in rows:
        right = Right(role=row.role, shared=row.shared, own=row.own)
        routes.add(row.method, PREFIX + row.path, _handler(site, row), right)


def _handler(site: Site, row: Operation) -> Handler:
    async def handle(req: Request, resp: Response, **path: str) -> None:
        request = await requests.of(row, req)
        reply = await row.handler(site, req, request, **path)
        answer = reply if isinstance(reply, Answer) else Answer(value=reply)
        if row.role is not Role.WORKER:  # who works on a message gets it as it is
            value = for_asker(req, answer.value, path.get("name", ""))
            answer = replace(answer, value=value)
        tell(site, req, resp, row, answer)

    return handle


def tell(
    site: Site, req: Request, resp: Response, row: Operation, reply: Answer
) -> None:
    """Answer with a reply, as its row says; 304 for what the asker has already."""
    resp.status = falcon.code_to_http_status(reply.status or row.status)
    resp.cache_control = ["no-store"]
    for name, value in reply.headers.items():
        resp.set_header(name, value)
    if reply.file is not None:
        downloads.send_file(site, req, resp, reply.file.fd, reply.file.media)
        return
    if reply.events is not None:
        resp.sse = reply.events  # type: ignore[assignment]
        resp.set_header("X-Accel-Buffering", "no")
        return
    tag = reply.headers.get("ETag")
    if tag is not None and tag in (req.get_header("If-None-Match") or ""):
        resp.status = falcon.HTTP_304
        return
    resp.content_type = str(reply.media or row.gives)
    if reply.pieces is not None:
        resp.stream = reply.pieces
    else:
        resp.data = orjson.dumps(reply.value) if reply.data is None else reply.data
