"""The history as Spark last published it: small JSON files that anybody can read.

`ROOT/spark/history/json/` holds `index.json` (as of when, which days, how many messages
are in which state) and a file for each day. Nothing here needs Spark or Java.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rq.layout import Root

PERCENTS = (50, 95, 99)
BUCKETS = 40  # of a histogram: bucket k counts what took 2^k to 2^(k+1) µs; 0: below 2
COUNTS = ("accepted", "started", "done", "relayed", "err", "retries", "lost")


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of the published files."""

    path: Path

    @property
    def index(self) -> Path:
        return self.path / "index.json"

    @property
    def days(self) -> Path:
        """What each day was made of; read by the next round, not by pages."""
        return self.path / "days.json"

    def day(self, date: str) -> Path:
        return self.path / f"{date}.json"


def place(root: Root) -> Place:
    return Place(root.spark / "history" / "json")


@dataclass(slots=True)
class Published:
    """Reads published files, each again only when it has changed."""

    place: Place
    _kept: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = field(
        default_factory=dict
    )

    def index(self) -> dict[str, Any] | None:
        """Return the index; None when nothing was published yet."""
        return self._read(self.place.index)

    def days(self, dates: Iterable[str]) -> list[dict[str, Any]]:
        """Return the days that were published, of these."""
        wanted = [self.place.day(one) for one in dates]
        for path in self._kept.keys() - {self.place.index, *wanted}:
            del self._kept[path]
        return [found for path in wanted if (found := self._read(path)) is not None]

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_mtime_ns, stat.st_ino)
                kept = self._kept.get(path)
                if kept is not None and kept[0] == stamp:
                    return kept[1]
                found = orjson.loads(file.read())
        except (OSError, orjson.JSONDecodeError):
            return None
        if not isinstance(found, dict):
            return None
        self._kept[path] = (stamp, found)
        return found


def percentile(histogram: Iterable[int], percent: float) -> float | None:
    """Return about which value, in µs, `percent` of what was counted stay below.

    >>> percentile([0, 0, 0, 10], 50)
    12.0
    >>> percentile([], 50) is None
    True
    """
    counted = list(histogram)
    rank = sum(counted) * percent / 100
    if not rank:
        return None
    for bucket, number in enumerate(counted):
        if number >= rank:
            low = float(2**bucket) if bucket else 0.0
            return low + (2.0 ** (bucket + 1) - low) * rank / number
        rank -= number
    return None


def added(histograms: Iterable[list[int]]) -> list[int]:
    """Return the sum of histograms, which need not be equally long."""
    total: list[int] = []
    for one in histograms:
        total += [0] * (len(one) - len(total))
        for bucket, number in enumerate(one):
            total[bucket] += number
    return total
