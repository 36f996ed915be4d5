"""The overview: is all well, what runs, what waits, what needs a person."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TypedDict, cast
from urllib.parse import urlencode

from falcon import HTTP_303
from falcon.asgi import Request, Response

from rq import names
from rq.access.roles import Principal, Role
from rq.errors import BadInput
from rq.index import doors
from rq.replies import SupervisorStatus, verdict
from rq.replies.verdict import Fault, TroubleView
from rq.web import views
from rq.web.pages import chosen_queues, facts, page
from rq.web.pages.facts import QueueRow
from rq.web.routes import Routes
from rq.web.site import Site

_SHARED_FOR = 1.0  # seconds
_TIMERS = 10
_RUNNING = 12
_TROUBLES = 3  # that are shown at once
_ROWS = 500  # queues that are listed: of more a person looks for one by its name
_LONGEST = 400  # characters of what is looked for: the address of a message


class SupervisorFacts(TypedDict):
    """What a page shows of the supervisor; nothing of one that does not answer."""

    version: str | None
    pid: int | None
    uptime: int | None  # seconds


class MessagePlace(TypedDict):
    """Where a message with the id that was looked for is."""

    queue: str
    state: str
    path: str


class Facts(TypedDict, total=False):
    """What the overview shows."""

    time: float
    operational: bool
    supervisor: SupervisorFacts
    totals: facts.Totals
    level: str  # OK, WARNING or CRITICAL
    trouble: list[TroubleView]
    warnings: list[str]
    queues: list[QueueRow]
    running: list[facts.RunningRow]
    timers: facts.Timers
    disk: facts.DiskFacts
    found: list[MessagePlace]  # where an id was looked for


def add_routes(routes: Routes, site: Site) -> None:
    """Add the overview and its twin."""
    overview = Overview(site)
    for path in ("/", "/overview.json"):
        routes.get(path, overview.on_get, Role.VIEWER, shared=True)


class Overview:
    """GET / and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._disk = facts.Disk()
        self._shared: asyncio.Task[Facts] | None = None
        self._since = 0.0

    async def on_get(self, req: Request, resp: Response) -> None:
        # Pages that renew themselves share one look, so that many viewers cost no more
        # than one. A page that is loaded, say after an action, gets a fresh look.
        if req.get_header("X-RQ-Live"):
            every = await asyncio.shield(self._look())
        else:
            every = await self._facts()
        overview = seen_by(req.context.principal, every)
        wanted = req.get_param("find", default="")[:_LONGEST].strip()
        named = message_named(wanted)
        queues = overview["queues"]
        places = await self._having(queues, *named) if named else []
        follows = not (page.wants_json(req) or req.get_header("X-RQ-Live"))
        if len(places) == 1 and follows:
            resp.status = HTTP_303
            resp.set_header("Location", self._site.url(places[0]["path"]))
            return
        if follows and self._is_searched(wanted, named, overview["queues"]):
            resp.status = HTTP_303
            words = urlencode({"words": wanted})
            resp.set_header("Location", self._site.url(f"/search?{words}"))
            return
        values = {
            "facts": {**overview, "found": places} if named else overview,
            "messages": places,
            "looked_for": wanted if named else "",
            "silent": [row["name"] for row in queues if not row["answers"]],
            "most_running": _RUNNING,
            "most_timers": _TIMERS,
            "most_troubles": _TROUBLES,
            **_listed(req, overview, "" if named else wanted),
        }
        await page.show(req, resp, self._site, "overview.html", values)

    def _is_searched(
        self, wanted: str, named: tuple[str, str] | None, rows: Sequence[QueueRow]
    ) -> bool:
        """Whether what is looked for is neither an id nor a part of a queue's name: then
        it may be a word of a message."""
        if named or self._site.config.index is None:
            return False
        if not wanted or min(map(len, wanted.split())) < doors.SHORTEST:
            return False
        return not chosen_queues.chosen(rows, wanted, "", ())

    async def _having(
        self, rows: list[QueueRow], queue: str, msg_id: str
    ) -> list[MessagePlace]:
        """Return the messages of an id: one, unless queues have given the same one."""
        there = [row["name"] for row in rows if not queue or row["name"] == queue]
        request = {"msg_id": msg_id}
        replies = await self._site.owners.each(there, "get_message_state", request)
        return [
            MessagePlace(queue=name, state=str(reply[1]), path=f"/q/{name}/{msg_id}")
            for name, reply in zip(there, replies, strict=True)
            if isinstance(reply, list) and reply[0] == "ok"
        ]

    def _look(self) -> asyncio.Task[Facts]:
        now = time.monotonic()
        if self._shared is None or now - self._since > _SHARED_FOR:
            self._shared, self._since = asyncio.create_task(self._facts()), now
        return self._shared

    async def _facts(self) -> Facts:
        site, now = self._site, time.time()
        status, timers, disk = await asyncio.gather(
            views.supervisor(site.owners),
            facts.timers(site),
            self._disk.facts(site.root),
        )
        rows = await facts.queues(site, status)
        troubles = await facts.troubles(site, status, rows)
        return {
            "time": now,
            "operational": bool(status),
            "supervisor": supervisor_facts(status),
            "totals": facts.totals(rows),
            "level": verdict.level(troubles).name,
            "trouble": [item.to_json() for item in troubles],
            "warnings": site.warnings(),
            "queues": rows,
            "running": facts.running(rows, now),
            "timers": timers,
            "disk": disk,
        }


def _listed(req: Request, overview: Facts, find: str) -> dict[str, object]:
    """Return the rows of the table, and what the address says of them."""
    rows, troubled = overview["queues"], queues_of(overview["trouble"])
    order = req.get_param("sort", default="")
    show = req.get_param("show", default="")
    counts = {
        word: len(chosen_queues.chosen(rows, "", word, troubled))
        for word in chosen_queues.SHOWS
    }
    few = chosen_queues.chosen(rows, find, show, troubled)
    return {
        "rows": chosen_queues.ordered(few, order, troubled)[:_ROWS],
        "not_listed": max(0, len(few) - _ROWS),
        "find": find,
        "sort": order if order in chosen_queues.SORTS else "",
        "show": show if show in chosen_queues.SHOWS else "",
        "shows": chosen_queues.SHOWS,
        "counts": counts,
    }


def queues_of(trouble: Sequence[TroubleView]) -> set[str]:
    """Return the names of the queues that do not work as they should: not of those that a
    person has paused, nor of those whose messages have failed, which have a list."""
    items = (item for item in trouble if not item["passing"])
    items = (
        item for item in items if item["fault"] not in (Fault.FAILED, Fault.SAMPLE)
    )
    return {name for item in items for name in (item["queue"], *item["queues"]) if name}


def supervisor_facts(status: SupervisorStatus) -> SupervisorFacts:
    return {
        "version": status.get("version"),
        "pid": status.get("pid"),
        "uptime": status.get("uptime"),
    }


def seen_by(principal: Principal, overview: Facts) -> Facts:
    """Return the facts without what is about queues that the reader may not see."""
    if not principal.is_limited:
        return overview
    rows = [row for row in overview["queues"] if principal.sees(row["name"])]
    troubles = facts.troubles_of(rows, is_running=overview["operational"])
    return {
        **overview,
        "totals": facts.totals(rows),
        "level": verdict.level(troubles).name,
        "trouble": [item.to_json() for item in troubles],
        "warnings": [],
        "queues": rows,
        "running": facts.running(rows, overview["time"]),
        "timers": cast(facts.Timers, {"timers": [], "errors": {}}),
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
