"""Where a message is: words, looked for in what the messages of all queues say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypedDict

from falcon.asgi import Request, Response

from rq.access.roles import Role
from rq.errors import RQError
from rq.index import doors
from rq.index.doors import HitsView
from rq.web import indexed
from rq.web.pages import page
from rq.web.routes import Routes
from rq.web.site import Site
from rq.words.states import COUNTED

COLUMNS = {
    "accepted": "Accepted",
    "queue": "Queue",
    "msg_id": "Message",
    "state": "State",
    "changed": "Since",
}
_BULKS = 12  # queues and states that are offered


class Facts(TypedDict):
    """What the page shows."""

    time: float
    fields: Mapping[str, str]
    answer: HitsView | None  # None: there is none
    why: str


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page of the search and its twin."""
    pages = SearchPage(site)
    for path in ("/search", "/search.json"):
        routes.get(path, pages.on_get, Role.VIEWER, shared=True)


class SearchPage:
    """GET /search and its twin; for programs: `api.index`."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response) -> None:
        now, fields = time.time(), page.filled_in(req, (*doors.SEARCH_FIELDS, "offset"))
        answer, why = None, ""
        if fields["words"].strip() or fields["by"]:
            answer, why = await self._answer(req, fields, now)
        facts: Facts = {"time": now, "fields": fields, "answer": answer, "why": why}
        values = {
            "facts": facts,
            "columns": COLUMNS,
            "states": COUNTED,
            "bulks": _bulks(answer),
            "address": lambda **changes: page.address({**fields, **changes}),
            "most": doors.PAGE,
        }
        await page.show(req, resp, self._site, "search.html", values)

    async def _answer(
        self, req: Request, fields: Mapping[str, str], now: float
    ) -> tuple[HitsView | None, str]:
        """Return the messages, or why they are not known."""
        try:
            question = doors.search_question(fields, now)
            hits, fresh = await indexed.answer(
                self._site, req, lambda index, visible: index.search(question, visible)
            )
        except RQError as error:
            return None, str(error)
        view = doors.hits_view(hits, fresh, now)
        return {**view, "messages": indexed.for_reader(req, view["messages"])}, ""


def _bulks(answer: HitsView | None) -> list[tuple[str, str, int]]:
    """Return the queues and states of what is shown, the most frequent first, as pages of
    many messages take them."""
    counts: dict[tuple[str, str], int] = {}
    for row in answer["messages"] if answer is not None else []:
        if row["state"] in COUNTED:
            place = row["queue"], row["state"]
            counts[place] = counts.get(place, 0) + 1
    most = sorted(counts.items(), key=lambda item: -item[1])[:_BULKS]
    return [(queue, state, number) for (queue, state), number in most]
