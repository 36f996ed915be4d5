"""What happened: throughput, outcomes and durations, as the history was last published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from falcon.asgi import Request, Response

from rq import published
from rq.published import COUNTS, PERCENTS, Published
from rq.web.pages import page, plots
from rq.web.pages.queue import known

if TYPE_CHECKING:
    from rq.web.site import Site

# In the address: (title, days, whether a bar is an hour).
RANGES = {"day": ("24 hours", 1, True), "week": ("7 days", 7, True),
          "month": ("30 days", 30, False)}  # fmt: skip
_USUAL = "week"
_HEAT_DAYS = 7  # at least
_SLOWEST = 12
_HOUR = timedelta(hours=1)


class HistoryPage:
    """GET /history and /q/NAME/history, and their twins."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._published = Published(published.place(site.root))

    async def of_all(self, req: Request, resp: Response) -> None:
        await self._show(req, resp, None)

    async def of_queue(self, req: Request, resp: Response, name: str) -> None:
        known(self._site, name)
        await self._show(req, resp, name)

    async def _show(self, req: Request, resp: Response, queue: str | None) -> None:
        chosen = req.get_param("range", default=_USUAL)
        if chosen not in RANGES:
            chosen = _USUAL
        told = await asyncio.to_thread(facts, self._published, queue, chosen)
        values = {
            "facts": told,
            "queue": queue,
            "ranges": RANGES,
            "chosen": chosen,
            "here_url": f"/q/{queue}/history" if queue else "/history",
            "pictures": pictures(told) if told["as_of"] else None,
        }
        await page.show(req, resp, self._site, "history.html", values)


# ---- facts


def facts(place: Published, queue: str | None, chosen: str) -> dict[str, Any]:
    """Return what the page tells of a queue, or of all (None), in a range of time."""
    index = place.index()
    empty = {"time": time.time(), "queue": queue, "range": chosen, "as_of": None}
    if index is None:
        return empty
    span = _span(float(index["as_of"]), chosen)
    published_days = set(index["days"])
    dates = [one for one in span.dates if one in published_days]
    days = {one["date"]: one for one in place.days(dates)}
    parts = _parts(days, span)
    mine = [(key, part) for key, part in parts if key.queue == queue]
    steps = _steps(days, span, queue)
    return {
        **empty,
        "as_of": index["as_of"],
        "events": index["events"],
        "unit": "hour" if span.hourly else "day",
        "steps": steps,
        "totals": _sum(part for _, part in mine),
        "causes": _causes(part for _, part in mine),
        "heat": _heat(days, span, queue),
        "queues": _queues(parts, index["counts"]) if queue is None else [],
        "states": _states(index["counts"], queue),
        "slowest": _slowest(days, span, queue),
        "there": sorted(index["counts"]),
    }


@dataclass(frozen=True, slots=True)
class Span:
    """A range of time in UTC, whole hours or days."""

    first: datetime
    last: datetime  # the hour or day that is shown last
    hourly: bool

    @property
    def dates(self) -> list[str]:
        """The days to read: those of the heat map, too."""
        shown = (self.last.date() - self.first.date()).days + 1
        number = max(shown, _HEAT_DAYS)
        days = [self.last - timedelta(days=back) for back in range(number)]
        return [f"{one:%Y-%m-%d}" for one in reversed(days)]

    def steps(self) -> list[datetime]:
        step = _HOUR if self.hourly else timedelta(days=1)
        return [
            self.first + number * step
            for number in range((self.last - self.first) // step + 1)
        ]

    def holds(self, date: str, hour: int) -> bool:
        return self.first <= datetime.fromisoformat(f"{date}T{hour:02}:00:00+00:00")


def _span(as_of: float, chosen: str) -> Span:
    _, days, hourly = RANGES[chosen]
    last = datetime.fromtimestamp(as_of, UTC).replace(minute=0, second=0, microsecond=0)
    if days == 1:
        return Span(last - 23 * _HOUR, last, hourly)
    midnight = last.replace(hour=0)
    first = midnight - timedelta(days=days - 1)
    return Span(first, midnight + 23 * _HOUR if hourly else midnight, hourly)


@dataclass(frozen=True, slots=True)
class _Key:
    date: str
    hour: int
    queue: str | None


_Part = Mapping[str, Any]


def _parts(days: Mapping[str, Any], span: Span) -> list[tuple[_Key, _Part]]:
    """Return every hour of every queue, and of all together, that the range holds."""
    return [
        (_Key(date, part["hour"], part["queue"]), part)
        for date, day in days.items()
        for part in day["parts"]
        if part["hour"] is not None and span.holds(date, part["hour"])
    ]


def _steps(
    days: Mapping[str, Any], span: Span, queue: str | None
) -> list[dict[str, Any]]:
    """Return the bars of the range, those in which nothing happened, too."""
    found = {
        (date, part["hour"]): part
        for date, day in days.items()
        for part in day["parts"]
        if part["queue"] == queue and (part["hour"] is None) != span.hourly
    }
    steps = []
    for moment in span.steps():
        part = found.get((f"{moment:%Y-%m-%d}", moment.hour if span.hourly else None))
        part = part or {}
        steps.append(
            {
                "at": moment.timestamp(),
                **{name: part.get(name, 0) for name in COUNTS},
                "wait": part.get("wait") or None,
                "run": part.get("run") or None,
            }
        )
    return steps


def _sum(parts: Iterable[_Part]) -> dict[str, Any]:
    """Return the sums of parts; percentiles of sums are told from histograms."""
    held = list(parts)
    total: dict[str, Any] = {
        name: sum(part[name] for part in held) for name in (*COUNTS, "attempts")
    }
    for name in ("wait", "run"):
        histogram = published.added(part[f"{name}_hist"] for part in held)
        total[f"{name}_about"] = [
            published.percentile(histogram, percent) for percent in PERCENTS
        ]
    return total


def _causes(parts: Iterable[_Part]) -> list[dict[str, Any]]:
    total: dict[str, int] = {}
    for part in parts:
        for cause, number in part["causes"].items():
            total[cause] = total.get(cause, 0) + number
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [{"cause": cause, "number": number} for cause, number in ordered]


def _heat(
    days: Mapping[str, Any], span: Span, queue: str | None
) -> list[dict[str, Any]]:
    """Return what ended in each hour of each day, the newest day first."""
    rows = []
    for date in reversed(span.dates):
        hours = [0] * 24
        for part in days.get(date, {"parts": []})["parts"]:
            if part["queue"] == queue and part["hour"] is not None:
                hours[part["hour"]] = part["done"] + part["relayed"] + part["err"]
        rows.append({"date": date, "hours": hours})
    return rows


def _queues(
    parts: Sequence[tuple[_Key, _Part]], counts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    by_queue: dict[str, list[_Part]] = {name: [] for name in counts}
    for key, part in parts:
        if key.queue is not None:
            by_queue.setdefault(key.queue, []).append(part)
    return [{"queue": name, **_sum(held)} for name, held in sorted(by_queue.items())]


def _states(counts: Mapping[str, Any], queue: str | None) -> list[dict[str, Any]]:
    """Return how many messages of each queue are where, as `rq ls --count` has it."""
    wanted = counts if queue is None else {queue: counts.get(queue, {})}
    return [{"queue": name, "counts": dict(wanted[name])} for name in sorted(wanted)]


def _slowest(
    days: Mapping[str, Any], span: Span, queue: str | None
) -> list[dict[str, Any]]:
    found = [
        one
        for day in days.values()
        for one in day["slowest"]
        if queue in (None, one["queue"]) and one["ts"] / 1e6 >= span.first.timestamp()
    ]
    found.sort(key=lambda one: (-one["run_us"], one["ts"]))
    return found[:_SLOWEST]


# ---- pictures


def pictures(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plots of what is told."""
    steps = told["steps"]
    good = [one["done"] + one["relayed"] for one in steps]
    bad = [one["err"] for one in steps]
    heat = told["heat"]
    shaded = plots.shades([row["hours"] for row in heat])
    most = max(told["states"], key=_all_of, default=None)
    return {
        "ended": asdict(plots.bars(good, bad)),
        "wait": asdict(plots.steps(_lines(steps, "wait"))),
        "run": asdict(plots.steps(_lines(steps, "run"))),
        "times": _times(steps, told["unit"], told["range"]),
        "heat": [
            {**row, "shades": cells} for row, cells in zip(heat, shaded, strict=True)
        ],
        "heat_most": max((max(row["hours"]) for row in heat), default=0),
        "states_most": _all_of(most) if most else 0,
    }


def _all_of(row: Mapping[str, Any]) -> int:
    return sum(row["counts"].values())


def _lines(steps: Sequence[_Part], name: str) -> list[list[int | None]]:
    return [
        [one[name][number] if one[name] else None for one in steps]
        for number in range(len(PERCENTS))
    ]


def _times(steps: Sequence[_Part], unit: str, chosen: str) -> list[str]:
    """Return the labels below a picture; each stands where its part begins."""
    moments = [datetime.fromtimestamp(one["at"], UTC) for one in steps]
    if chosen == "day":
        return [f"{one:%H:%M}" for one in moments[::6]]
    if unit == "hour":
        return [f"{one:%a} {one.day}" for one in moments[::24]]
    return [f"{one.day} {one:%b}" for one in moments[::6]]
