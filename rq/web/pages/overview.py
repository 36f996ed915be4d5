"""The overview: is all well, what runs, what waits, what needs a person."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq.web.pages import facts, page

if TYPE_CHECKING:
    from rq.web.site import Site

SORTS = ("name", "waiting", "running", "errors", "oldest")
_SHARED_FOR = 1.0  # seconds
_TIMERS = 10
_RUNNING = 12


class Overview:
    """GET / and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._disk = facts.Disk()
        self._shared: asyncio.Task[dict[str, Any]] | None = None
        self._since = 0.0

    async def on_get(self, req: Request, resp: Response) -> None:
        # Pages that renew themselves share one look: watching costs no more when many
        # do. Who loads a page, say after acting, gets a look of their own.
        if req.get_header("X-RQ-Live"):
            told = await asyncio.shield(self._look())
        else:
            told = await self._facts()
        wanted = req.get_param("find", default="")[:128]
        order = req.get_param("sort", default="")
        rows = [row for row in told["queues"] if wanted.lower() in row["name"].lower()]
        values = {
            "facts": told,
            "rows": ordered(rows, order),
            "find": wanted,
            "sort": order if order in SORTS else "",
            "most_running": _RUNNING,
            "most_timers": _TIMERS,
        }
        await page.show(req, resp, self._site, "overview.html", values)

    def _look(self) -> asyncio.Task[dict[str, Any]]:
        now = time.monotonic()
        if self._shared is None or now - self._since > _SHARED_FOR:
            self._shared, self._since = asyncio.create_task(self._facts()), now
        return self._shared

    async def _facts(self) -> dict[str, Any]:
        site, now = self._site, time.time()
        told, timers, disk = await asyncio.gather(
            facts.supervisor(site),
            facts.timers(site),
            self._disk.facts(site.root),
        )
        rows = await facts.queues(site, told)
        return {
            "time": now,
            "operational": bool(told),
            "supervisor": {
                name: told.get(name) for name in ("version", "pid", "uptime")
            },
            "totals": facts.totals(rows),
            "trouble": facts.trouble(told, rows),
            "warnings": list(site.warnings),
            "queues": rows,
            "running": facts.running(rows, now),
            "timers": timers,
            "disk": disk,
        }


def ordered(rows: list[dict[str, Any]], order: str) -> list[dict[str, Any]]:
    """Return the rows as the reader wants them; names break ties."""
    keys = {
        "name": lambda row: row["name"].lower(),
        "waiting": lambda row: -row["counts"].get("que", 0),
        "running": lambda row: -row["counts"].get("run", 0),
        "errors": lambda row: -row["counts"].get("err", 0),
        "oldest": lambda row: -(row["oldest_due_age"] or 0),
    }
    key = keys.get(order)
    return sorted(rows, key=key) if key else rows
