"""The Delta tables that jobs write: a list, and for each its columns, versions and rows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from falcon.asgi import Request, Response

from rq import tables
from rq.access.roles import Principal, Role
from rq.errors import NoSuchQueue
from rq.tables import REJECTED, Facts, Held, Name, Step
from rq.web.pages import page, plots
from rq.web.routes import Routes
from rq.web.site import Site
from rq.web.table_reader import Reader

_MOST = 200  # tables that are listed
_BARS, _LEAST = 48, 16
_LISTED = 30  # versions
_DAY = 86400.0
_STEPS = (60.0, 600.0, 3600.0, 21600.0, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY)


class ListFacts(TypedDict):
    """What the list shows."""

    tables: list[Facts]
    held: list[Held]
    more: int  # tables that are not listed


class TableFacts(TypedDict):
    """What the page of a table shows."""

    table: Facts
    rejected: Facts | None  # the table of what did not fit
    held: list[Held]  # of its queue


def add_routes(routes: Routes, site: Site) -> None:
    """Add the list, the page of a table, and their twins."""
    pages = TablesPage(site)
    for path in ("/tables", "/tables.json"):
        routes.get(path, pages.on_list, Role.VIEWER, shared=True)
    for path in ("/tables/{name}/{table}", "/tables/{name}/{table}.json"):
        routes.get(path, pages.on_get, Role.VIEWER)


class TablesPage:
    """GET /tables, /tables/QUEUE/NAME and their twins."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reader = Reader(site.root)

    async def on_list(self, req: Request, resp: Response) -> None:
        names = await asyncio.to_thread(_every, self._site, req)
        facts: ListFacts = {
            "tables": await self._reader.of(names[:_MOST]),
            "held": _seen(req.context.principal, self._reader.held()),
            "more": max(len(names) - _MOST, 0),
        }
        queue = req.get_param("queue", default="")
        values: Mapping[str, object] = {"facts": facts, "queue": queue}
        await page.show(req, resp, self._site, "tables.html", values)

    async def on_get(self, req: Request, resp: Response, name: str, table: str) -> None:
        wanted = Name(name, table)
        if not await asyncio.to_thread(_is_there, self._site, wanted):
            raise NoSuchQueue(f"There is no table {wanted.text!r:.80}.")
        both = [wanted]
        if await asyncio.to_thread(_is_there, self._site, wanted.rejected):
            both.append(wanted.rejected)
        table_facts, *rejected = await self._reader.of(both)
        facts: TableFacts = {
            "table": table_facts,
            "rejected": rejected[0] if rejected else None,
            "held": [h for h in self._reader.held() if h["queue"] == name],
        }
        values = {
            "facts": facts,
            "queue": name,
            "name": table,
            "of": table.removesuffix(REJECTED) if table.endswith(REJECTED) else "",
            "versions": table_facts["versions"][:_LISTED],
            "picture": picture(facts),
        }
        await page.show(req, resp, self._site, "table.html", values)


def _every(site: Site, req: Request) -> list[Name]:
    """Return the tables of the queues that the reader may ask of, or of one of these."""
    queue = req.get_param("queue", default="")
    principal: Principal = req.context.principal
    return [
        name
        for name in tables.every(site.root)
        if principal.sees(name.queue) and queue in ("", name.queue)
    ]


def _is_there(site: Site, name: Name) -> bool:
    return name in tables.every(site.root)


def _seen(principal: Principal, held: Sequence[Held]) -> list[Held]:
    return [entry for entry in held if principal.sees(entry["queue"])]


# ---- the picture


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Rows that came, and those that did not fit, in steps of time."""

    bars: plots.Bars
    times: list[str]  # labels
    came: int
    rejected: int


def picture(facts: TableFacts) -> Picture | None:
    """Return the rows of a table's last versions over time; None without any."""
    came = _moments(facts["table"]["versions"])
    rejected = _moments(facts["rejected"]["versions"] if facts["rejected"] else [])
    every = [*came, *rejected]
    if not every:
        return None
    last = max(at for at, _ in every)
    first = min(at for at, _ in every)
    step = next((s for s in _STEPS if (last - first) / s < _BARS - 1), _STEPS[-1])
    number = min(max(int(last // step - first // step) + 1, _LEAST), _BARS)
    begin = (last // step - number + 1) * step
    good = _in_bars(came, begin, step, number)
    bad = _in_bars(rejected, begin, step, number)
    return Picture(
        bars=plots.bars(good, bad),
        times=[_label(begin + n * number // 4 * step, step) for n in range(4)],
        came=sum(good),
        rejected=sum(bad),
    )


def _moments(versions: Sequence[Step]) -> list[tuple[float, int]]:
    return [(v["time"], v["rows"]) for v in versions if v["rows"] and v["time"]]


def _in_bars(
    moments: Sequence[tuple[float, int]], begin: float, step: float, number: int
) -> list[int]:
    bars = [0] * number
    for at, rows in moments:
        if at >= begin:
            bars[min(int((at - begin) // step), number - 1)] += rows
    return bars


def _label(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%H:%M}" if step < 3600 else f"{moment.day} {moment:%b}"
