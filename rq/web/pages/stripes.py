"""The bar of the night: a stripe for each run and for each span of fires that timers missed,
as the data of SVG paths; pure.

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
from rq.replies.processes import TimerMiss

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
    """A run, or fires that were missed."""

    path: str
    kind: str  # good, bad, run or missed
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """All runs of a span."""

    stripes: Sequence[Stripe]
    height: int
    labels: Sequence[str]  # from the left to the right, at even distances
    label: str  # of the picture, for who does not see it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """What a stripe shows."""

    started: float
    ended: float
    kind: str
    title: str


def night(
    runs: Sequence[RunView],
    since: float,
    until: float,
    misses: Sequence[TimerMiss] = (),
) -> Night:
    """Return the picture of runs and of missed fires between two moments."""
    free: list[float] = []  # by lane: from which x on
    spans = [*map(_of_run, runs), *map(_of_miss, misses)]
    since = max(since, min(span.started for span in spans))
    until = max(min(until, max(span.ended for span in spans)), since + 1.0)
    scale, stripes = WIDTH / (until - since), []
    for span in sorted(spans, key=lambda span: span.started):
        left = max((span.started - since) * scale, 0.0)
        wide = max((min(span.ended, until) - since) * scale - left, _LEAST)
        left = min(left, WIDTH - wide)
        lane = _lane(free, left, left + wide)
        path = f"M{left:.1f} {lane * _LANE + 1}h{wide:.1f}v{_TALL}h-{wide:.1f}z"
        stripes.append(Stripe(path=path, kind=span.kind, title=span.title))
    missed = f", and {len(misses)} times missed fires" if misses else ""
    return Night(
        stripes=stripes,
        height=len(free) * _LANE,
        labels=_labels(since, until),
        label=f"{len(runs)} runs{missed} in {len(free)} lanes, as they overlap",
    )


def _of_run(run: RunView) -> _Span:
    ended = run["started"] + run["ran"] if run["ended"] is None else run["ended"]
    title = f"{run['queue']}, {_clock(run['started'])}, {run['ran']:.0f} s, {run['outcome']}"
    return _Span(started=run["started"], ended=ended, kind=_kind(run), title=title)


def _of_miss(miss: TimerMiss) -> _Span:
    fires = f"{miss['count']} fire{'s' if miss['count'] != 1 else ''} missed"
    title = f"timer {miss['timer']}, {_clock(miss['from'])}, {fires}: {miss['why']}"
    return _Span(started=miss["from"], ended=miss["to"], kind="missed", title=title)


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M:%S} UTC"


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


def _labels(since: float, until: float) -> list[str]:
    """Return the times below a picture."""
    step = (until - since) / (_LABELS - 1)
    form = next(form for most, form in _FORMS if until - since < most)
    return [
        datetime.fromtimestamp(since + step * at, UTC).strftime(form)
        for at in range(_LABELS)
    ]
