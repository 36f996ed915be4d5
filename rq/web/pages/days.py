"""The days of the tables that a queue's jobs write: a grid of how each stands."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypedDict

from falcon.asgi import Request, Response

from rq import config, days
from rq.access.roles import Role
from rq.days import Days, DayView, Standing
from rq.errors import RQError
from rq.layout import Root
from rq.web import forms
from rq.web.answers import say
from rq.web.pages import page
from rq.web.routes import Routes
from rq.web.site import Site

_MOST = 731  # days that are shown, the last ones
_LOOKS = 2_000  # messages that are looked for: a page is asked for often
_LISTED = 50  # days that are told with why they are not done
_WIDTH = 31


class Facts(TypedDict):
    """What the page shows."""

    queue: str
    days: list[DayView]
    counts: dict[str, int]  # by state


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A line of the grid."""

    name: str
    cells: Sequence[DayView | None]  # a place for each day of a month; None: not shown


def add_routes(routes: Routes, site: Site) -> None:
    """Add the page and its twin."""
    grid = DaysPage(site)
    for path in ("/q/{name}/days", "/q/{name}/days.json"):
        routes.get(path, grid.on_get, Role.VIEWER)
    routes.post("/q/{name}/days", grid.cancel, Role.OPERATOR)


class DaysPage:
    """GET /q/NAME/days and its twin."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def on_get(self, req: Request, resp: Response, name: str) -> None:
        page.check_queue(self._site, name)
        views = await asyncio.to_thread(facts, self._site.root, name)
        not_done = [d for d in views["days"] if d["state"] not in _QUIET]
        values: Mapping[str, object] = {
            "facts": views,
            "months": months(views["days"]),
            "states": [str(state) for state in Standing],
            "not_done": not_done[-_LISTED:],
            "more": max(len(not_done) - _LISTED, 0),
            "to_make": [d["day"] for d in views["days"] if d["state"] in days.TO_MAKE],
        }
        await page.show(req, resp, self._site, "days.html", values)

    async def cancel(self, req: Request, resp: Response, name: str) -> None:
        """Let what makes days again now end."""
        page.check_queue(self._site, name)
        form = await forms.read(req)
        forms.method(form, ("cancel",))
        noted = Days(self._site.root, name)
        running = await asyncio.to_thread(noted.cancel)
        text = f"cancelled: {', '.join(running) or 'no day was being made again'}"
        say(self._site, req, resp, form, ["ok", text], f"/q/{name}/days", text)


_QUIET = (Standing.DONE, Standing.MISSING)


def facts(root: Root, queue: str) -> Facts:
    """Return how the days of a queue's tables stand, up to the last that has rows."""
    noted = Days(root, queue)
    span, views = noted.span(), list[DayView]()
    if span is not None:
        last = date.fromisoformat(span[1])
        first = max(span[0], f"{last - timedelta(days=_MOST - 1)}")
        views = noted.views(days.between(first, span[1]), _script(root, queue), _LOOKS)
    counts = Counter(view["state"] for view in views)
    return {"queue": queue, "days": views, "counts": dict(counts)}


def _script(root: Root, queue: str) -> str:
    """Return the digest of a queue's script; "" if its config cannot be read."""
    try:
        settings = config.read_queue(root.queue(queue))
    except RQError:
        return ""
    return days.digest(root.path / settings.script)


def months(views: Sequence[DayView]) -> list[Month]:
    """Return the lines of the grid, the newest month first."""
    lines: dict[str, list[DayView | None]] = {}
    for view in views:
        line = lines.setdefault(view["day"][:7], [None] * _WIDTH)
        line[int(view["day"][8:]) - 1] = view
    return [Month(name=name, cells=lines[name]) for name in sorted(lines, reverse=True)]
