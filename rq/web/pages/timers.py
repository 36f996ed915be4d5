"""The timers: what is sent by the clock, when, and what became of the last time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from falcon.asgi import Request, Response

from rq.web.pages import facts, page

if TYPE_CHECKING:
    from rq.web.site import Site


class TimersPage:
    """GET /timers and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response) -> None:
        timers = await facts.timers(self._site)
        values = {
            "facts": {"time": time.time(), **timers},
            "timers": timers["timers"],
            "errors": timers["errors"],
        }
        await page.show(req, resp, self._site, "timers.html", values)
