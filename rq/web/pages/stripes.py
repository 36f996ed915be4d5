"""The bar of the night: a stripe for each run, as the data of SVG paths; pure.

Runs that overlap lie in lanes below each other; each takes the first lane that is free when
it begins. So the picture is as high as most ran at one time. It begins with the first run
and ends with the last: of a span in which nothing ran for long, it shows the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rq.index.doors import RunView

WIDTH: Final = 1000
_LANE: Final = 8  # high, with the gap below it
_TALL: Final = 6
_LEAST: Final = 2.0  # wide: also what ran for a moment is seen
_MOST_LANES: Final = 16
_BAD: Final = frozenset({"err", "lost"})
_LABELS: Final = 6
_FORMS: Final = ((600, "%H:%M:%S"), (86400, "%H:%M"), (math.inf, "%m-%d %H:%M"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripe:
    """A run."""

    path: str
    kind: str  # good, bad or run
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """All runs of a span."""

    stripes: Sequence[Stripe]
    height: int
    labels: Sequence[str]  # from the left to the right, at even distances
    label: str  # of the picture, for who does not see it


def night(runs: Sequence[RunView], since: float, until: float) -> Night:
    """Return the picture of some runs between two moments."""
    free: list[float] = []  # by lane: from which x on
    since = max(since, min(run["started"] for run in runs))
    until = max(min(until, max(map(_end, runs))), since + 1.0)
    scale, stripes = WIDTH / (until - since), []
    for run in sorted(runs, key=lambda run: run["started"]):
        left = max((run["started"] - since) * scale, 0.0)
        wide = max((min(_end(run), until) - since) * scale - left, _LEAST)
        left = min(left, WIDTH - wide)
        lane = _lane(free, left, left + wide)
        path = f"M{left:.1f} {lane * _LANE + 1}h{wide:.1f}v{_TALL}h-{wide:.1f}z"
        stripes.append(Stripe(path=path, kind=_kind(run), title=_title(run)))
    return Night(
        stripes=stripes,
        height=len(free) * _LANE,
        labels=_labels(since, until),
        label=f"{len(stripes)} runs in {len(free)} lanes, as they overlap",
    )


def _end(run: RunView) -> float:
    return run["started"] + run["ran"] if run["ended"] is None else run["ended"]


def _lane(free: list[float], left: float, right: float) -> int:
    """Take the first lane that is free; when there are too many, the last."""
    for lane, until in enumerate(free):
        if until <= left:
            free[lane] = right
            return lane
    if len(free) < _MOST_LANES:
        free.append(right)
    return len(free) - 1


def _kind(run: RunView) -> str:
    if run["ended"] is None:
        return "run"
    return "bad" if run["outcome"] in _BAD else "good"


def _title(run: RunView) -> str:
    at = datetime.fromtimestamp(run["started"], UTC)
    return f"{run['queue']}, {at:%H:%M:%S} UTC, {run['ran']:.0f} s, {run['outcome']}"


def _labels(since: float, until: float) -> list[str]:
    """Return the times below a picture."""
    step = (until - since) / (_LABELS - 1)
    form = next(form for most, form in _FORMS if until - since < most)
    return [
        datetime.fromtimestamp(since + step * at, UTC).strftime(form)
        for at in range(_LABELS)
    ]
