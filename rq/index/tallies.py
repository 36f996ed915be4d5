"""Counts of an hour of a queue, in the columns of the published history."""

from __future__ import annotations

from typing import TypedDict

from rq import published
from rq.published import BUCKETS, PERCENTS, Part, percentile


class Counts(TypedDict):
    """As a row of `hours` keeps them."""

    by: dict[str, int]  # the names are those of `published.COUNTS`
    causes: dict[str, int]
    wait_hist: list[int]
    run_hist: list[int]


def empty() -> Counts:
    return {"by": {}, "causes": {}, "wait_hist": [], "run_hist": []}


def count(counts: dict[str, int], name: str, number: int = 1) -> None:
    counts[name] = counts.get(name, 0) + number


def measure(histogram: list[int], us: int) -> None:
    """Count a duration."""
    bucket = min(BUCKETS - 1, max(0, us.bit_length() - 1))
    histogram += [0] * (bucket + 1 - len(histogram))
    histogram[bucket] += 1


def part(counts: Counts, hour: int, queue: str | None) -> Part:
    """Return the columns of the published history."""
    by = counts["by"]
    return {
        "hour": hour % 24,
        "queue": queue,
        "accepted": by.get("accepted", 0),
        "started": by.get("started", 0),
        "done": by.get("done", 0),
        "relayed": by.get("relayed", 0),
        "err": by.get("err", 0),
        "retries": by.get("retries", 0),
        "lost": by.get("lost", 0),
        "attempts": sum(counts["run_hist"]),
        "causes": counts["causes"],
        "wait": _percentiles(counts["wait_hist"]),
        "run": _percentiles(counts["run_hist"]),
        "wait_hist": counts["wait_hist"],
        "run_hist": counts["run_hist"],
    }


def _percentiles(histogram: list[int]) -> list[int] | None:
    values = [percentile(histogram, percent) for percent in PERCENTS]
    return [int(value) for value in values if value is not None] or None


def added(first: Counts, second: Counts) -> Counts:
    """Return the sum of both."""
    return {
        "by": _sum(first["by"], second["by"]),
        "causes": _sum(first["causes"], second["causes"]),
        "wait_hist": published.added((first["wait_hist"], second["wait_hist"])),
        "run_hist": published.added((first["run_hist"], second["run_hist"])),
    }


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    total = dict(first)
    for name, number in second.items():
        count(total, name, number)
    return total
