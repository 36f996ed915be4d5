"""The timers: what is sent by the clock, when, and what became of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from falcon.asgi import Request, Response

from rq.web import views
from rq.web.pages import facts, page

if TYPE_CHECKING:
    from rq.web.site import Site


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
