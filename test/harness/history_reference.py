"""The gold of a root in plain Python: what Spark must come to, too."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from harness import journal_files
from rq import published
from rq.layout import Root

NAMES = {
    "commit": "accepted",
    "claim": "started",
    "finish": "done",
    "relay": "relayed",
    "fail": "err",
    "retry": "retries",
    "recover": "lost",
}
SEEN = ("que", "run", "done", "relayed", "err", "dismissed")


def gold(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[tuple, dict[str, Any]]]:
    """Return {date: {(queue, hour): figures}}; None stands for all queues or hours."""
    held: dict[str, dict[tuple, list]] = defaultdict(lambda: defaultdict(list))
    for one in events:
        if "state" not in one:
            continue
        at = datetime.fromtimestamp(one["ts"] / 1e6, UTC).hour
        for queue in (one["queue"], None):
            for hour in (at, None):
                held[day_of(one)][queue, hour].append(one)
    return {
        date: {key: figures(those) for key, those in parts.items()}
        for date, parts in held.items()
    }


def figures(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for one in events:
        riders = len(one.get("riders", ()))
        if one["ev"] in NAMES:
            counts[NAMES[one["ev"]]] += 1 + riders
        if "cause" in one:
            causes[one["cause"]] += 1
        causes["duplicate"] += riders
    ended = [one for one in events if "run_us" in one]
    waits = [one["wait_us"] for one in ended]
    runs = [one["run_us"] for one in ended]
    return {
        **{name: counts[name] for name in NAMES.values()},
        "causes": {name: n for name, n in causes.items() if n},
        "attempts": len(ended),
        "wait": percentiles(waits),
        "run": percentiles(runs),
        "wait_hist": histogram(waits),
        "run_hist": histogram(runs),
    }


def percentiles(values: Sequence[int]) -> list[int]:
    if not values:
        return []
    ordered = sorted(values)
    found = []
    for part in (0.5, 0.95, 0.99):
        at = part * (len(ordered) - 1)
        low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
        found.append(round(low + (high - low) * (at - math.floor(at))))
    return found


def histogram(values: Sequence[int]) -> list[int]:
    found = [0] * 40
    for one in values:
        found[max(one, 1).bit_length() - 1] += 1
    while found and not found[-1]:
        found.pop()
    return found


def states(events: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return how many messages of each queue are in which state: the last that was said
    of each."""
    last: dict[tuple[str, str], str] = {}
    for one in sorted(events, key=lambda one: (one["journal"], one["seq"])):
        for msg in (*one.get("msgs", ()), *one.get("riders", ()), one.get("msg")):
            if msg and "state" in one:
                last[one["queue"], msg] = one["state"]
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for (queue, _), state in last.items():
        if state in SEEN:
            found[queue][state] += 1
    return {queue: dict(counts) for queue, counts in found.items()}


def publish(root: Root, as_of: float, into: Root | None = None) -> None:
    """Publish the history of a root as Spark does, from what is sealed in it; in that
    root, or in another."""
    events = list(journal_files.lines(root))
    place = published.place(into or root)
    place.path.mkdir(parents=True, exist_ok=True)
    days = gold(events)
    for date, parts in days.items():
        rows = [{"queue": q, "hour": h, **part} for (q, h), part in parts.items()]
        slow = [slowest(one) for one in events if "run_us" in one]
        slow = [one for one in slow if day_of(one) == date]
        day = {"date": date, "as_of": as_of, "parts": rows, "slowest": slow}
        place.day(date).write_text(json.dumps(day))
    index = {"as_of": as_of, "days": sorted(days), "events": len(events)}
    place.index.write_text(json.dumps({**index, "counts": states(events)}))


def day_of(one: Mapping[str, Any]) -> str:
    return f"{datetime.fromtimestamp(one['ts'] / 1e6, UTC):%Y-%m-%d}"


def slowest(one: Mapping[str, Any]) -> dict[str, Any]:
    names = ("queue", "msg", "ts", "run_us", "wait_us", "cause")
    return {name: one[name] for name in names}
