"""The overview: is all well, what runs, what waits, what needs a person."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from falcon import HTTP_303
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Principal
from rq.errors import BadInput
from rq.web.pages import facts, page

if TYPE_CHECKING:
    from rq.web.site import Site

SORTS = ("name", "waiting", "running", "errors", "oldest")
_SHARED_FOR = 1.0  # seconds
_TIMERS = 10
_RUNNING = 12
_LONGEST = 400  # characters of what is looked for: the address of a message


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
        told = seen_by(req.context.principal, told)
        wanted = req.get_param("find", default="")[:_LONGEST].strip()
        named = message_named(wanted)
        found = await self._having(told["queues"], *named) if named else []
        follows = not (page.wants_json(req) or req.get_header("X-RQ-Live"))
        if len(found) == 1 and follows:
            resp.status = HTTP_303
            resp.set_header("Location", self._site.url(found[0]["path"]))
            return
        order = req.get_param("sort", default="")
        find = "" if named else wanted
        rows = [row for row in told["queues"] if find.lower() in row["name"].lower()]
        values = {
            "facts": {**told, "found": found} if named else told,
            "found": found,
            "looked_for": wanted if named else "",
            "silent": [row["name"] for row in told["queues"] if not row["answers"]],
            "rows": ordered(rows, order),
            "find": find,
            "sort": order if order in SORTS else "",
            "most_running": _RUNNING,
            "most_timers": _TIMERS,
        }
        await page.show(req, resp, self._site, "overview.html", values)

    async def _having(
        self, rows: list[dict[str, Any]], queue: str, msg_id: str
    ) -> list[dict[str, str]]:
        """Return the messages of an id: one, unless queues have given the same one."""
        there = [row["name"] for row in rows if not queue or row["name"] == queue]
        asked = {"msg_id": msg_id}
        replies = await self._site.owners.each(there, "get_message_state", asked)
        return [
            {"queue": name, "state": str(reply[1]), "path": f"/q/{name}/{msg_id}"}
            for name, reply in zip(there, replies, strict=True)
            if isinstance(reply, list) and reply[0] == "ok"
        ]

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
            "warnings": site.warnings(),
            "queues": rows,
            "running": facts.running(rows, now),
            "timers": timers,
            "disk": disk,
        }


def seen_by(principal: Principal, told: dict[str, Any]) -> dict[str, Any]:
    """Return the facts without what is about queues that somebody may not see."""
    if not principal.is_limited:
        return told
    rows = [row for row in told["queues"] if principal.sees(row["name"])]
    return {
        **told,
        "totals": facts.totals(rows),
        "trouble": facts.trouble({}, rows) if told["operational"] else [],
        "warnings": [],
        "queues": rows,
        "running": facts.running(rows, told["time"]),
        "timers": {"timers": [], "errors": {}},
    }


def message_named(text: str) -> tuple[str, str] | None:
    """Return (queue or "", short id) when a text names a message; None when it does not.

    >>> message_named("20260102.0304.05.006.7")
    ('', '20260102.0304.05.006.7')
    >>> message_named("http://h:3333/q/demo/20260102.0304.05.006.7")
    ('demo', '20260102.0304.05.006.7')
    >>> message_named("demo"), message_named("a/b"), message_named("http://h/")
    (None, None, None)
    """
    try:
        if "/" not in text:
            return "", names.msg_id(text)
        queue, msg_id = names.split_url(text)
    except BadInput:
        return None
    return (queue, msg_id) if msg_id else None


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
