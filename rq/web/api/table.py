"""All rows of `/api/v1`."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import orjson
from falcon.asgi import Request

from rq.access.roles import Role
from rq.web.api import (
    actions,
    attempts,
    bulk,
    bulks,
    lease_bytes,
    lease_words,
    leases,
    messages,
    notices,
    openapi,
    queues,
    timers,
    transactions,
)
from rq.web.api.install import install
from rq.web.api.operation import Answer, Operation
from rq.web.routes import Routes
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
    ),
    *queues.ROWS,
    *messages.ROWS,
    *attempts.ROWS,
    *bulk.ROWS,
    *actions.ROWS,
    *bulks.ROWS,
    *transactions.ROWS,
    *leases.ROWS,
    *lease_words.ROWS,
    *lease_bytes.ROWS,
    *timers.ROWS,
    *notices.ROWS,
)


def add_routes(routes: Routes, site: Site) -> None:
    """Add the route of every row."""
    install(routes, site, ROWS)
