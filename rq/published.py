"""The history as Spark last published it: small JSON files that anybody can read.

`ROOT/spark/history/json/` holds `index.json` (as of when, which days, how many messages
are in which state) and a file for each day. Nothing here needs Spark or Java.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import orjson

from rq.layout import Root
from rq.words.states import Event

PERCENTS = (50, 95, 99)
BUCKETS = 40  # of a histogram: bucket k counts what took 2^k to 2^(k+1) µs; 0: below 2
# What an event adds to; one that names riders or several messages adds as many.
COUNT_OF: Mapping[str, str] = {
    Event.COMMIT: "accepted",
    Event.CLAIM: "started",
    Event.FINISH: "done",
    Event.RELAY: "relayed",
    Event.FAIL: "err",
    Event.RETRY: "retries",
    Event.RECOVER: "lost",
}
COUNTS = tuple(COUNT_OF.values())


class Tally(TypedDict):
    """How many messages: the names are COUNTS."""

    accepted: int
    started: int
    done: int
    relayed: int
    err: int
    retries: int
    lost: int


class Part(Tally):
    """What happened in an hour (None: in the whole day) in a queue (None: in all)."""

    hour: int | None
    queue: str | None
    attempts: int
    causes: Mapping[str, int]
    wait: Sequence[int] | None  # µs, for each of PERCENTS
    run: Sequence[int] | None
    wait_hist: list[int]
    run_hist: list[int]


class Slow(TypedDict):
    """An attempt that ran long."""

    queue: str
    msg: str
    ts: int  # µs since the epoch
    run_us: int
    wait_us: int | None
    cause: str | None
    journal: NotRequired[str]  # with `seq`, which event tells it
    seq: NotRequired[int]


class Day(TypedDict):
    """The file of a day."""

    date: str  # 2026-01-02
    exact: NotRequired[bool]  # whether percentiles of the whole day are; absent: yes
    parts: Sequence[Part]
    slowest: Sequence[Slow]


class Index(TypedDict):
    """The file `index.json`."""

    as_of: float  # epoch seconds
    events: int
    days: Sequence[str]
    counts: Mapping[str, Mapping[str, int]]  # by queue and state


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
    _kept: dict[Path, tuple[tuple[int, int], dict[str, object]]] = field(
        default_factory=dict
    )

    def index(self) -> Index | None:
        """Return the index; None when nothing was published yet."""
        return cast(Index | None, self._read(self.place.index))

    def days(self, dates: Iterable[str]) -> list[Day]:
        """Return the days that were published, of these."""
        wanted = [self.place.day(date) for date in dates]
        for path in self._kept.keys() - {self.place.index, *wanted}:
            del self._kept[path]
        return [cast(Day, day) for path in wanted if (day := self._read(path))]

    def _read(self, path: Path) -> dict[str, object] | None:
        try:
            with path.open("rb") as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_mtime_ns, stat.st_ino)
                kept = self._kept.get(path)
                if kept is not None and kept[0] == stamp:
                    return kept[1]
                content = orjson.loads(file.read())
        except (OSError, orjson.JSONDecodeError):
            return None
        if not isinstance(content, dict):
            return None
        self._kept[path] = (stamp, content)
        return content


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
    for histogram in histograms:
        total += [0] * (len(histogram) - len(total))
        for bucket, number in enumerate(histogram):
            total[bucket] += number
    return total
