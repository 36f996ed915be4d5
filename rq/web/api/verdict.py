"""The operation of monitors: how RQ is, in one list of troubles."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.replies import verdict
from rq.replies.verdict import Fault, Figures, Trouble, VerdictView
from rq.web.api.operation import Operation
from rq.web.pages import facts
from rq.web.site import Site

_PATIENCE = 4.0  # seconds in which all have to answer; most monitors wait longer


async def get_verdict(site: Site, req: Request, body: None) -> VerdictView:
    principal: Principal = req.context.principal
    status, rows = await facts.all_of_them(site, _PATIENCE)
    if principal.is_limited:
        rows = [row for row in rows if principal.sees(row["name"])]
        troubles = facts.troubles_of(rows, is_running=bool(status))
    else:
        troubles = await facts.troubles(site, status, rows)
    figures = _figures(rows, troubles)
    if not principal.is_limited:
        room = os.statvfs(site.root.path)
        figures["disk_free_bytes"] = room.f_bavail * room.f_frsize
    return {
        "level": verdict.level(troubles).name,
        "time": time.time(),
        "running": bool(status),
        "troubles": [trouble.to_json() for trouble in troubles],
        "figures": figures,
    }


def _figures(rows: Sequence[facts.QueueRow], troubles: Sequence[Trouble]) -> Figures:
    totals = facts.totals(rows)
    failed = (item.number for item in troubles if item.fault is Fault.FAILED)
    return {
        "queues": len(rows),
        "waiting": totals.que,
        "running": totals.run,
        "failed": sum(failed),
        "oldest_due_age": totals.oldest_due_age,
    }


ROWS = (
    Operation(
        operation_id="getVerdict",
        method="GET",
        path="/verdict",
        role=Role.VIEWER,
        summary="Show how RQ is: what is not well, how bad, and what to do.",
        request=None,
        reply=VerdictView,
        failures=(),
        handler=get_verdict,
        shared=True,
    ),
)
