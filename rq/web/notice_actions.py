"""What a person does about the notices of a queue: a test now."""

from __future__ import annotations

from typing import cast

import falcon
from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.web import forms
from rq.web.answers import failure_in, say
from rq.web.routes import Routes
from rq.web.site import Site


def add_routes(routes: Routes, site: Site) -> None:
    """Add the action of the panel on a queue's page."""

    async def test(req: Request, resp: Response, name: str) -> None:
        form = await forms.read(req)
        if form.get("_method") != "test":
            raise falcon.HTTPBadRequest(description="_method is not test")
        reply = await site.owners.ask(name, "test_notice")
        text = ""
        if failure_in(reply) is None:
            whom = cast(list[str], reply[1])
            text = f"a test notice is on its way to {', '.join(whom)}"
        say(site, req, resp, form, reply, f"/q/{name}", text)

    routes.post("/q/{name}/notices", test, Role.OPERATOR)
