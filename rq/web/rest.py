"""The ancestor's REST that looks at queues; messages: `messages`, changes: `pages`."""

from __future__ import annotations

import falcon
import orjson
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Principal, Role
from rq.config import read_json, secrets
from rq.errors import NoSuchQueue
from rq.web import (
    attachments,
    downloads,
    messages,
    metrics,
    resumable_uploads,
    views,
)
from rq.web.answers import (
    say_json,
    say_reply,
    say_text,
    sees_secrets,
)
from rq.web.routes import Routes
from rq.web.site import Site

_STATES = ("prep", "que", "run", "done", "err", "relayed")
_MOST_LISTED = 10_000


def add_routes(routes: Routes, site: Site) -> None:
    """Add every route that is no page."""
    queues = Queues(site)
    routes.get("/q.txt", queues.names_text, Role.VIEWER, shared=True)
    routes.get("/q.json", queues.names_json, Role.VIEWER, shared=True)
    routes.get("/q/{name}.txt", queues.text, Role.VIEWER)
    routes.get("/q/{name}.json", queues.json, Role.VIEWER)
    routes.get("/q/{name}/done.json", queues.done, Role.VIEWER)
    routes.get("/q/{name}/config.json", queues.config_file, Role.VIEWER)
    routes.get("/q/{name}/config", queues.config, Role.VIEWER)
    messages.add_routes(routes, site)
    attachments.add_routes(routes, site)
    downloads.add_routes(routes, site)
    resumable_uploads.add_routes(routes, site)
    metrics.add_routes(routes, site)


class Queues:
    """Lists, counts and settings of queues."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def names_text(self, req: Request, resp: Response) -> None:
        lines = [f"q/{name}.txt\n" for name in self._names(req)]
        say_text(resp, "".join(lines) + "\n")

    async def names_json(self, req: Request, resp: Response) -> None:
        say_json(resp, self._names(req))

    def _names(self, req: Request) -> list[str]:
        principal: Principal = req.context.principal
        return [name for name in self._site.queue_names() if principal.sees(name)]

    async def text(self, req: Request, resp: Response, name: str) -> None:
        facts = await self._facts(name)
        say_text(resp, "\n".join(f"{key}: {value}\n" for key, value in facts.items()))

    async def json(self, req: Request, resp: Response, name: str) -> None:
        facts = await self._facts(name)
        sizes = {f"{k}_size" if k in _STATES else k: v for k, v in facts.items()}
        say_json(resp, sizes)

    async def _facts(self, name: str) -> dict[str, object]:
        detail = await views.demand_detail(self._site.owners, name)
        if detail["status"] == "DOWN":
            return {"status": "DOWN"}
        counts = {state: detail["counts"][state] for state in _STATES}
        return {"status": detail["status"], "uptime": detail["uptime"], **counts}

    async def done(self, req: Request, resp: Response, name: str) -> None:
        limit = req.get_param_as_int("limit", default=10, max_value=_MOST_LISTED)
        request = {"state": "done", "limit": limit}
        say_reply(resp, await self._site.owners.ask(name, "messages", request))

    async def config_file(self, req: Request, resp: Response, name: str) -> None:
        path = self._site.root.queue(_named(name)).config
        try:
            data = path.read_bytes()
        except OSError:
            raise NoSuchQueue(f"there is no queue {name}") from None
        if not sees_secrets(req):
            data = orjson.dumps(secrets.masked(read_json(path)))
        resp.content_type = falcon.MEDIA_JSON
        resp.data = data

    async def config(self, req: Request, resp: Response, name: str) -> None:
        config = await views.config(self._site.owners, name)
        say_json(resp, config if sees_secrets(req) else secrets.masked(config))


def _named(name: str) -> str:
    """Return a name that may become part of a path."""
    if names.is_queue_name(name):
        return name
    raise NoSuchQueue(f"there is no queue {name!r:.80}")
