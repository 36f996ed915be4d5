"""What ran in a span of time, of all queues: last night, if nothing else is said."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypedDict

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import RQError
from rq.index import doors
from rq.index.doors import RunsView, SumsView
from rq.web import indexed
from rq.web.pages import page, stripes
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.wording import duration

COLUMNS = {
    "started": "Started",
    "ended": "Ended",
    "queue": "Queue",
    "msg_id": "Message",
    "waited": "Waited",
    "ran": "Ran",
    "outcome": "Outcome",
    "cause": "Why",
    "by": "Sent by",
}
NUMBERS = ("waited", "ran")


class Facts(TypedDict):
    """What the page shows."""

    time: float
    fields: Mapping[str, str]
    answer: RunsView | None  # None: there is none
    why: str


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of runs and its twin."""
    pages = RunsPage(site)
    for path in ("/runs", "/runs.json"):
        routes.get(path, pages.on_get, Role.VIEWER, shared=True)


class RunsPage:
    """GET /runs and its twin; for programs: `api.index`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response) -> None:
        now, fields = time.time(), page.filled_in(req, (*doors.RUNS_FIELDS, "offset"))
        answer, why = await self._answer(req, fields, now)
        facts: Facts = {"time": now, "fields": fields, "answer": answer, "why": why}
        values = {
            "facts": facts,
            "columns": COLUMNS,
            "numbers": NUMBERS,
            "sums": "" if answer is None else _sums(answer["sums"]),
            "night": _night(answer, fields, now),
            "address": lambda **changes: page.address({**fields, **changes}),
            "most": doors.PAGE,
        }
        await page.show(req, resp, self._site, "runs.html", values)

    async def _answer(
        self, req: Request, fields: Mapping[str, str], now: float
    ) -> tuple[RunsView | None, str]:
        """Return what ran, or why that is not known."""
        try:
            return await indexed.runs(self._site, req, fields, now), ""
        except RQError as error:
            return None, str(error)


def _sums(sums: SumsView) -> str:
    slowest = sums["slowest"]
    return doors.sums_text(sums, duration(slowest["ran"]) if slowest else "")


def _night(
    answer: RunsView | None, fields: Mapping[str, str], now: float
) -> stripes.Night | None:
    """Return the picture of all that ran or was missed; none when the rows are a part of it."""
    if answer is None or answer["more"] or fields["offset"]:
        return None
    runs, misses = answer["runs"], answer["misses"]
    if not runs and not misses:
        return None
    until = now if answer["until"] is None else answer["until"]
    return stripes.night(runs, answer["since"], until, misses)
