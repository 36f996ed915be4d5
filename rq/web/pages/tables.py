"""The Delta tables that jobs write: a list, and for each its columns, versions and rows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from falcon.asgi import Request, Response

from rq import tables
from rq.access.roles import Principal, Role
from rq.checks import Checks, CheckView
from rq.errors import BadInput, Busy, NoSuchQueue
from rq.tables import REJECTED, Facts, Held, Name, Step
from rq.web.pages import page, plots
from rq.web.routes import Routes
from rq.web.site import Site
from rq.web.table_reader import Reader

_MOST = 200  # tables that are listed
_BARS, _LEAST = 48, 16
_LISTED = 30  # versions
_HELD, _BROKEN = 4, 8  # checks that are listed
_CHECKS = 500  # that are drawn
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
    checks: list[CheckView]  # what jobs expected of its data, the newest first


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
            "checks": await asyncio.to_thread(_checks, self._site, wanted),
        }
        values = {
            "facts": facts,
            "queue": name,
            "name": table,
            "place": await asyncio.to_thread(_place, self._site, wanted),
            "of": table.removesuffix(REJECTED) if table.endswith(REJECTED) else "",
            "versions": table_facts["versions"][:_LISTED],
            "pictures": pictures(facts),
            "checks": _listed(facts["checks"]),
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


def _place(site: Site, name: Name) -> str:
    """Return where a table is: below the root, or its address in a store."""
    stored = None
    with contextlib.suppress(BadInput):  # a damaged note, which the reader has told
        stored = tables.stored(site.root, name)
    return (stored or f"spark/tables/{name.text}").partition("?")[0]


def _seen(principal: Principal, held: Sequence[Held]) -> list[Held]:
    return [entry for entry in held if principal.sees(entry["queue"])]


def _checks(site: Site, name: Name) -> list[CheckView]:
    """Return what was expected of a table; of rows that did not fit, nothing was."""
    if name.table.endswith(REJECTED):
        return []
    try:
        return Checks(site.root, name.queue).of_table(name.table, _CHECKS)
    except (
        Busy
    ):  # damaged, or a disk that is away: the table is to be seen all the same
        return []


def _listed(checks: Sequence[CheckView]) -> list[CheckView]:
    """Return the last checks that held, and those that did not, the newest first."""
    held = [check for check in checks if check["holds"]][:_HELD]
    broken = [check for check in checks if not check["holds"]][:_BROKEN]
    return sorted([*held, *broken], key=lambda check: -check["number"])


# ---- the pictures

Moment = tuple[float, int]  # when, and how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What went well, and what did not, in steps of time."""

    bars: plots.Bars
    good: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Pictures over the same time."""

    times: list[str]  # labels
    rows: Picture | None  # that came, and were rejected
    checks: Picture | None  # that held, and did not


@dataclass(frozen=True, slots=True)
class _Scale:
    """Steps of time, one for each bar."""

    begin: float
    step: float
    number: int

    def picture(self, good: Sequence[Moment], bad: Sequence[Moment]) -> Picture | None:
        """Return what happened; None if that is nothing."""
        upper, lower = self._in_bars(good), self._in_bars(bad)
        if not any([*upper, *lower]):
            return None
        return Picture(bars=plots.bars(upper, lower), good=sum(upper), bad=sum(lower))

    def _in_bars(self, moments: Sequence[Moment]) -> list[int]:
        bars = [0] * self.number
        for at, count in moments:
            if at >= self.begin:
                index = int((at - self.begin) // self.step)
                bars[min(index, self.number - 1)] += count
        return bars

    @property
    def labels(self) -> list[str]:
        starts = (self.begin + n * self.number // 4 * self.step for n in range(4))
        return [_label(at, self.step) for at in starts]


def pictures(facts: TableFacts) -> Pictures | None:
    """Return the rows of a table's last versions over time, and what was expected of them;
    None without any."""
    came = _moments(facts["table"]["versions"])
    rejected = _moments(facts["rejected"]["versions"] if facts["rejected"] else [])
    held, broken = ([(c["time"], 1) for c in facts["checks"] if c["holds"] == holds]
                    for holds in (True, False))  # fmt: skip
    every = [at for at, _ in (*came, *rejected, *held, *broken)]
    if not every:
        return None
    scale = _scale(min(every), max(every))
    return Pictures(
        times=scale.labels,
        rows=scale.picture(came, rejected),
        checks=scale.picture(held, broken),
    )


def _scale(first: float, last: float) -> _Scale:
    step = next((s for s in _STEPS if (last - first) / s < _BARS - 1), _STEPS[-1])
    number = min(max(int(last // step - first // step) + 1, _LEAST), _BARS)
    return _Scale((last // step - number + 1) * step, step, number)


def _moments(versions: Sequence[Step]) -> list[Moment]:
    return [(v["time"], v["rows"]) for v in versions if v["rows"] and v["time"]]


def _label(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%H:%M}" if step < 3600 else f"{moment.day} {moment:%b}"
