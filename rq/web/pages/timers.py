"""The timers: what is sent by the clock, when, and what became of it."""

from __future__ import annotations

import time

import falcon
from falcon.asgi import Request, Response

from rq import wire
from rq.access.roles import Role
from rq.errors import RQError
from rq.lines.owners import Reply
from rq.nesting import Json
from rq.web import forms, views
from rq.web.answers import say
from rq.web.pages import facts, page
from rq.web.routes import Routes
from rq.web.site import Site

_SENTENCES = {
    "run": "a message is sent: {0}",
    "pause": "timer {1} is paused",
    "resume": "timer {1} fires again",
}


class TimersPage:
    """GET /timers, its twin, and the page of each."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def of_all(self, req: Request, resp: Response) -> None:
        timers = await facts.timers(self._site)
        values = {
            "facts": {"time": time.time(), **timers},
            "timers": timers["timers"],
            "errors": timers["errors"],
        }
        await page.show(req, resp, self._site, "timers.html", values)

    async def of_one(self, req: Request, resp: Response, timer: str) -> None:
        row = await views.timer(self._site.owners, timer)
        values = {"facts": row, "timer": row}
        await page.show(req, resp, self._site, "timer.html", values)


# ---- what a person does with a timer: a message now, a pause, an end of the pause


def add_actions(routes: Routes, site: Site) -> None:
    """Add the actions of the page of a timer."""

    async def change(req: Request, resp: Response, timer: str) -> None:
        form = await forms.read(req)
        method = form.get("_method")
        if method not in _SENTENCES:
            raise falcon.HTTPBadRequest(
                description="_method is none of run, pause and resume"
            )
        reply = await _asked(site, method, timer)
        text = _SENTENCES[method].format(reply[-1], timer)
        say(site, req, resp, form, reply, "/timers", text)

    routes.post("/timers/{timer}", change, Role.OPERATOR)


async def _asked(site: Site, command: str, timer: Json) -> Reply:
    """Return what the timers process says, as the reply that it is."""
    try:
        return ["ok", await site.owners.timers(command, timer)]
    except RQError as error:
        return wire.failure(error, with_kind=True)
