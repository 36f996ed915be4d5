"""The timers: what is sent by the clock, when, what became of it, and what a person does."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import RQError
from rq.replies.processes import TimerView
from rq.web import forms, views
from rq.web.answers import reply_of, say
from rq.web.deeds import OF_TIMER
from rq.web.pages import facts, page
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.states import State

_WAITING = 3  # messages of which a page says for what they wait


def add_routes(routes: Routes, site: Site) -> None:
    """Add the pages of timers, and what their buttons send."""
    timers = TimersPage(site)
    for path in ("/timers", "/timers.json"):
        routes.get(path, timers.of_all, Role.VIEWER)
    routes.get("/timers/{timer}", timers.of_one, Role.VIEWER)
    routes.post("/timers/{timer}", timers.change, Role.OPERATOR)


class TimersPage:
    """/timers, its twin, and the page of each."""

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
        waits = await self._waits(row)
        values = {"facts": row, "timer": row, "waits": waits}
        await page.show(req, resp, self._site, "timer.html", values)

    async def _waits(self, timer: TimerView) -> Mapping[str, str]:
        """Return for what the newest messages wait, by their addresses: a job that has
        not run waits, as a rule, in a queue that is paused, and only that knows."""
        urls = [fire["url"] for fire in timer["fires"] if fire["outcome"] == State.QUE]
        reasons = {}
        for url in urls[:_WAITING]:
            queue, _, msg_id = url.rpartition("/q/")[2].partition("/")
            with contextlib.suppress(RQError):  # it has gone on, or its queue is silent
                message = await views.message(self._site.owners, queue, msg_id)
                if why := message.get("_why"):
                    reasons[url] = why["text"]
        return reasons

    async def change(self, req: Request, resp: Response, timer: str) -> None:
        """Do one of OF_TIMER."""
        form = await forms.read(req)
        word = forms.method(form, OF_TIMER)
        reply = await reply_of(self._site.owners.timers(word, timer))
        text = OF_TIMER[word].done.format(name=timer, answer=reply[-1])
        say(self._site, req, resp, form, reply, "/timers", text)
