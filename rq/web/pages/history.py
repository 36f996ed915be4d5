"""What happened: throughput, outcomes and durations, as the history was last published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypedDict, cast

from falcon.asgi import Request, Response

from rq import published
from rq.access.roles import Role
from rq.published import COUNTS, PERCENTS, Day, Part, Published, Slow, Tally
from rq.replies import Counts
from rq.web.pages import page, plots
from rq.web.routes import Routes
from rq.web.site import Site

# In the address: (title, days, whether a bar is an hour).
RANGES = {"day": ("24 hours", 1, True), "week": ("7 days", 7, True),
          "month": ("30 days", 30, False)}  # fmt: skip
_HEAT_DAYS = 7  # at least
_SLOWEST = 12
_HOUR = timedelta(hours=1)


class Bar(Tally):
    """What happened in an hour or a day."""

    at: float  # epoch seconds
    wait: Sequence[int] | None  # µs, for each of PERCENTS
    run: Sequence[int] | None
    about: bool  # whether `wait` and `run` are: of a day that goes on


class Sums(Tally):
    """What happened in many hours; durations are of histograms, so about."""

    attempts: int
    wait_about: Sequence[float | None]  # µs, for each of PERCENTS
    run_about: Sequence[float | None]


class QueueSums(Sums):
    """The sums of a queue."""

    queue: str


class CauseRow(TypedDict):
    """How many attempts ended for a cause."""

    cause: str
    number: int


class HeatRow(TypedDict):
    """How many messages ended in each hour of a day."""

    date: str
    hours: list[int]


class StatesRow(TypedDict):
    """How many messages of a queue are in which state."""

    queue: str
    counts: dict[str, int]


class Facts(TypedDict, total=False):
    """What the page shows; before anything is published only the first four."""

    time: float
    queue: str | None
    range: str
    as_of: float | None  # epoch seconds
    events: int
    unit: str  # hour or day
    steps: list[Bar]
    totals: Sums
    causes: list[CauseRow]
    heat: list[HeatRow]
    queues: list[QueueSums]
    states: list[StatesRow]
    slowest: list[Slow]
    there: list[str]  # the queues that messages are in


def facts(place: Published, queue: str | None, chosen: str) -> Facts:
    """Return what the page shows of a queue, or of all (None), in a range of time."""
    index = place.index()
    empty: Facts = {
        "time": time.time(),
        "queue": queue,
        "range": chosen,
        "as_of": None,
    }
    if index is None:
        return empty
    span = _span(float(index["as_of"]), chosen)
    published_days = set(index["days"])
    dates = [date for date in span.dates if date in published_days]
    days = {day["date"]: day for day in place.days(dates)}
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
        bars = (self.last.date() - self.first.date()).days + 1
        number = max(bars, _HEAT_DAYS)
        days = [self.last - timedelta(days=back) for back in range(number)]
        return [f"{day:%Y-%m-%d}" for day in reversed(days)]

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


def _parts(days: Mapping[str, Day], span: Span) -> list[tuple[_Key, Part]]:
    """Return every hour of every queue, and of all together, that the range holds."""
    return [
        (_Key(date, part["hour"], part["queue"]), part)
        for date, day in days.items()
        for part in day["parts"]
        if part["hour"] is not None and span.holds(date, part["hour"])
    ]


def _steps(days: Mapping[str, Day], span: Span, queue: str | None) -> list[Bar]:
    """Return the bars of the range, those in which nothing happened, too."""
    parts = {
        (date, part["hour"]): part
        for date, day in days.items()
        for part in day["parts"]
        if part["queue"] == queue and (part["hour"] is None) != span.hourly
    }
    going_on = {date for date, day in days.items() if not day.get("exact", True)}
    bars: list[Bar] = []
    for moment in span.steps():
        date, hour = f"{moment:%Y-%m-%d}", moment.hour if span.hourly else None
        bar = _bar(moment.timestamp(), parts.get((date, hour), {}))
        bars.append({**bar, "about": hour is None and date in going_on})
    return bars


def _bar(at: float, part: Mapping[str, object]) -> Bar:
    bar = {
        "at": at,
        **{name: part.get(name, 0) for name in COUNTS},
        "wait": part.get("wait") or None,
        "run": part.get("run") or None,
        "about": False,
    }
    return cast(Bar, bar)


def _sum(parts: Iterable[Part]) -> Sums:
    """Return the sums of parts; percentiles of sums come from histograms."""
    held = list(parts)
    totals = {
        name: sum(cast(Mapping[str, int], part)[name] for part in held)
        for name in (*COUNTS, "attempts")
    }
    durations = {
        "wait_about": _about(part["wait_hist"] for part in held),
        "run_about": _about(part["run_hist"] for part in held),
    }
    return cast(Sums, {**totals, **durations})


def _about(histograms: Iterable[list[int]]) -> list[float | None]:
    histogram = published.added(histograms)
    return [published.percentile(histogram, percent) for percent in PERCENTS]


def _causes(parts: Iterable[Part]) -> list[CauseRow]:
    total: dict[str, int] = {}
    for part in parts:
        for cause, number in part["causes"].items():
            total[cause] = total.get(cause, 0) + number
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [{"cause": cause, "number": number} for cause, number in ordered]


def _heat(days: Mapping[str, Day], span: Span, queue: str | None) -> list[HeatRow]:
    """Return what ended in each hour of each day, the newest day first."""
    rows: list[HeatRow] = []
    for date in reversed(span.dates):
        hours = [0] * 24
        for part in days[date]["parts"] if date in days else ():
            if part["queue"] == queue and part["hour"] is not None:
                hours[part["hour"]] = part["done"] + part["relayed"] + part["err"]
        rows.append({"date": date, "hours": hours})
    return rows


def _queues(
    parts: Sequence[tuple[_Key, Part]], counts: Mapping[str, Counts]
) -> list[QueueSums]:
    by_queue: dict[str, list[Part]] = {name: [] for name in counts}
    for key, part in parts:
        if key.queue is not None:
            by_queue.setdefault(key.queue, []).append(part)
    return [{"queue": name, **_sum(held)} for name, held in sorted(by_queue.items())]


def _states(counts: Mapping[str, Counts], queue: str | None) -> list[StatesRow]:
    """Return how many messages of each queue are in which state, as `rq ls --count`."""
    wanted = counts if queue is None else {queue: counts.get(queue, {})}
    return [{"queue": name, "counts": dict(wanted[name])} for name in sorted(wanted)]


def _slowest(days: Mapping[str, Day], span: Span, queue: str | None) -> list[Slow]:
    first = span.first.timestamp()
    attempts = [
        attempt
        for day in days.values()
        for attempt in day["slowest"]
        if queue in (None, attempt["queue"]) and attempt["ts"] / 1e6 >= first
    ]
    attempts.sort(key=lambda attempt: (-attempt["run_us"], attempt["ts"]))
    return attempts[:_SLOWEST]


_USUAL = "week"


def add_routes(routes: Routes, site: Site) -> None:
    """Add the history of all queues, and of each."""
    history = HistoryPage(site)
    for path in ("/history", "/history.json"):
        routes.get(path, history.of_all, Role.VIEWER)
        routes.get(f"/q/{{name}}{path}", history.of_queue, Role.VIEWER)


class HistoryPage:
    """GET /history and /q/NAME/history, and their twins."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._published = Published(published.place(site.root))

    async def of_all(self, req: Request, resp: Response) -> None:
        await self._show(req, resp, None)

    async def of_queue(self, req: Request, resp: Response, name: str) -> None:
        page.check_queue(self._site, name)
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
