"""What load balancers ask, without a login: `/livez` and `/readyz`."""

from __future__ import annotations

from types import SimpleNamespace

from falcon.asgi import App, Request, Response

from rq.web.pages import facts
from rq.web.site import Site
from rq.words.states import Child

_PATIENCE = 4.0  # seconds in which all have to answer; most monitors wait five


def install(app: App[Request, Response], site: Site) -> None:
    """Add both, below the relative root and beside it."""

    async def livez(req: Request, resp: Response) -> None:
        _say_text(resp, 200, "ok")

    async def readyz(req: Request, resp: Response) -> None:
        problem = await _problem(site)
        _say_text(resp, 503 if problem else 200, problem or "ok")

    for prefix in {"", site.prefix}:
        app.add_route(f"{prefix}/livez", SimpleNamespace(on_get=livez, on_head=livez))
        app.add_route(
            f"{prefix}/readyz", SimpleNamespace(on_get=readyz, on_head=readyz)
        )


def _say_text(resp: Response, status: int, text: str) -> None:
    resp.status = status
    resp.content_type = "text/plain; charset=utf-8"
    resp.cache_control = ["no-store"]
    resp.text = text + "\n"


async def _problem(site: Site) -> str:
    """Return why messages cannot be taken now, or cannot run; "" when they can.

    Strangers read it, so it names queues and says no more than it must. A queue that an
    operator took down or paused is as it should be, and messages that failed are no
    reason to send the next ones elsewhere.
    """
    status, rows = await facts.all_of_them(site, _PATIENCE)
    if not status:
        return "the supervisor does not answer"
    starting = sum(row["status"] == Child.STARTING for row in rows)
    if starting:
        return f"{starting} of {len(rows)} queues are starting"
    for row in rows:
        for trouble in facts.queue_trouble(row):
            if trouble.stops:
                closed = row["closed_reason"]
                why = f": {closed}" if closed and row["answers"] else ""
                return f"queue {trouble.who} {trouble.said}{why}"
    return ""
