"""What happened: throughput, outcomes and durations, as the history was last published."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from falcon.asgi import Request, Response

from rq import published
from rq.published import PERCENTS, Published
from rq.web.pages import page, plots
from rq.web.pages.history_facts import RANGES, Bar, Facts, facts
from rq.web.pages.queue import check_queue

if TYPE_CHECKING:
    from rq.web.site import Site

_USUAL = "week"


class HistoryPage:
    """GET /history and /q/NAME/history, and their twins."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._published = Published(published.place(site.root))

    async def of_all(self, req: Request, resp: Response) -> None:
        await self._show(req, resp, None)

    async def of_queue(self, req: Request, resp: Response, name: str) -> None:
        check_queue(self._site, name)
        await self._show(req, resp, name)

    async def _show(self, req: Request, resp: Response, queue: str | None) -> None:
        chosen = req.get_param("range", default=_USUAL)
        if chosen not in RANGES:
            chosen = _USUAL
        history = await asyncio.to_thread(facts, self._published, queue, chosen)
        values = {
            "facts": history,
            "queue": queue,
            "ranges": RANGES,
            "chosen": chosen,
            "here_url": f"/q/{queue}/history" if queue else "/history",
            "pictures": pictures(history) if history["as_of"] else None,
        }
        await page.show(req, resp, self._site, "history.html", values)


# ---- pictures


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatLine:
    """A day of the heat map."""

    date: str
    hours: list[int]
    shades: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """The plots of a range."""

    ended: plots.Bars
    wait: plots.Steps
    run: plots.Steps
    times: list[str]  # labels
    heat: list[HeatLine]
    heat_most: int


def pictures(history: Facts) -> Pictures:
    """Return the plots of a range."""
    bars, heat = history["steps"], history["heat"]
    good = [bar["done"] + bar["relayed"] for bar in bars]
    bad = [bar["err"] for bar in bars]
    shaded = plots.shades([row["hours"] for row in heat])
    return Pictures(
        ended=plots.bars(good, bad),
        wait=plots.steps(_lines([bar["wait"] for bar in bars])),
        run=plots.steps(_lines([bar["run"] for bar in bars])),
        times=_times(bars, history["unit"], history["range"]),
        heat=[
            HeatLine(date=row["date"], hours=row["hours"], shades=shades)
            for row, shades in zip(heat, shaded, strict=True)
        ],
        heat_most=max((max(row["hours"]) for row in heat), default=0),
    )


def _lines(durations: Sequence[Sequence[int] | None]) -> list[list[int | None]]:
    return [
        [percents[number] if percents else None for percents in durations]
        for number in range(len(PERCENTS))
    ]


def _times(bars: Sequence[Bar], unit: str, chosen: str) -> list[str]:
    """Return the labels below a picture; each stands where its part begins."""
    moments = [datetime.fromtimestamp(bar["at"], UTC) for bar in bars]
    if chosen == "day":
        return [f"{moment:%H:%M}" for moment in moments[::6]]
    if unit == "hour":
        return [f"{moment:%a} {moment.day}" for moment in moments[::24]]
    return [f"{moment.day} {moment:%b}" for moment in moments[::6]]
