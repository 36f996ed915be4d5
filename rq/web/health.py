"""`/livez` and `/readyz`, for whoever watches this machine; they need no login."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from falcon.asgi import App, Request, Response

from rq.errors import RQError
from rq.states import Child
from rq.web.site import Site


def install(app: App[Any, Any], site: Site) -> None:
    """Add both, below the relative root and beside it."""

    async def livez(req: Request, resp: Response) -> None:
        _say(resp, 200, "ok")

    async def readyz(req: Request, resp: Response) -> None:
        problem = await _problem(site)
        _say(resp, 503 if problem else 200, problem or "ok")

    for prefix in {"", site.prefix}:
        app.add_route(f"{prefix}/livez", SimpleNamespace(on_get=livez, on_head=livez))
        app.add_route(
            f"{prefix}/readyz", SimpleNamespace(on_get=readyz, on_head=readyz)
        )


def _say(resp: Response, status: int, text: str) -> None:
    resp.status = status
    resp.content_type = "text/plain; charset=utf-8"
    resp.cache_control = ["no-store"]
    resp.text = text + "\n"


async def _problem(site: Site) -> str:
    """Return why messages cannot be taken now; "" when they can.

    A queue that an operator took down or that its own config broke is not a problem of
    the whole.
    """
    try:
        found = await site.owners.supervisor("status")
    except RQError:
        return "the supervisor does not answer"
    queues = [one for one in found["children"] if one["kind"] == "queue"]
    starting = sum(one["state"] == Child.STARTING for one in queues)
    if starting:
        return f"{starting} of {len(queues)} queues are starting"
    return await _closed(site, [o["name"] for o in queues if o["state"] == Child.UP])


async def _closed(site: Site, names: Sequence[str]) -> str:
    """Return why a queue that works takes nothing, a full disk, say; "" if all do."""
    told = await site.owners.each(names, "detail")
    for name, one in zip(names, told, strict=True):
        if isinstance(one, list) and one[0] == "ok" and one[1]["closed_reason"]:
            return f"queue {name} takes no messages: {one[1]['closed_reason']}"
    return ""
