"""Sparklines from kept counters, as the data of SVG paths; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeAlias

Series: TypeAlias = Mapping[str, int | Sequence[int]]  # as `detail` has them
EMPTY: dict[str, list[int]] = {
    "accepted": [],
    "done": [],
    "err": [],
    "depth": [],
    "leased": [],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Data of SVG paths, and the figures beside them."""

    width: int
    height: int
    bars: str
    bars_bad: str
    depth: str
    depth_fill: str
    most: int  # that ended in a minute
    deepest: int  # that waited at a time
    done: int
    err: int
    accepted: int
    label: str


def spark(series: Series) -> Picture:
    """Return the small picture of a queue's last hour: bars that ended, line of depth."""
    return _picture(series, 100)


def chart(series: Series) -> Picture:
    """Return the large picture; the same, finer."""
    return _picture(series, 300)


def behind(series: Series) -> Picture:
    """Return the large picture of a queue whose messages are leased: its line is of all
    that are not done, so a stream that leases and does not commit is seen, too."""
    waits, leased = _numbers(series, "depth"), _numbers(series, "leased")
    both = [sum(pair) for pair in zip_longest(waits, leased, fillvalue=0)]
    picture = chart({**series, "depth": both})
    label = f"last hour: {both[-1] if both else 0} waiting or leased now, "
    return replace(picture, label=f"{label}{picture.deepest} at most")


def traffic(came: Sequence[int], went: Sequence[int], waits: Sequence[int]) -> Picture:
    """Return the large picture of a queue of the broker: bars that were handed out, line
    of what waits."""
    series = {"accepted": came, "done": went, "err": [0] * len(went), "depth": waits}
    label = (
        f"last hour: {sum(came)} came, {sum(went)} were handed out; "
        f"{waits[-1] if waits else 0} waiting now, {max(waits, default=0)} at most"
    )
    return replace(chart(series), label=label)


# Whole numbers only: a page of many queues is mostly these, and they are stretched to
# their frame anyway.
_STEP, _WIDE = 4, 3  # from a bar to the next, and of a bar


def _picture(series: Series, height: int) -> Picture:
    done, err = _numbers(series, "done"), _numbers(series, "err")
    depth = _numbers(series, "depth")
    most = max((good + bad for good, bad in zip(done, err, strict=False)), default=0)
    deepest = max(depth, default=0)
    width = _STEP * max(len(done), len(depth), 1)
    line = _line(depth, deepest, width, height)
    return Picture(
        width=width,
        height=height,
        bars=_bars([0] * len(err), done, most, height),
        bars_bad=_bars(done, err, most, height),
        depth=line,
        depth_fill=f"{line}V{height}H0Z" if line else "",
        most=most,
        deepest=deepest,
        done=sum(done),
        err=sum(err),
        accepted=sum(_numbers(series, "accepted")),
        label=_label(done, err, depth),
    )


def _numbers(series: Series, name: str) -> Sequence[int]:
    numbers = series.get(name)
    return numbers if isinstance(numbers, list) else []


def _bars(below: Sequence[int], values: Sequence[int], most: int, height: int) -> str:
    """Return bars that stand on `below`, one for each value that is not 0."""
    if not most:
        return ""
    unit = height * 0.9 / most
    least = height // 25  # what is there is seen
    return "".join(
        f"M{at * _STEP} {height - int(base * unit)}v-{max(int(value * unit), least)}"
        f"h{_WIDE}V{height - int(base * unit)}z"
        for at, (base, value) in enumerate(zip(below, values, strict=False))
        if value
    )


def _line(values: Sequence[int], most: int, width: int, height: int) -> str:
    """Return a line through the values; none when nothing ever waited."""
    if not most:
        return ""
    step = width / max(len(values) - 1, 1)
    unit = height * 0.9 / most
    low = height - 2  # on its base, the line is seen whole
    points = [
        f"{int(at * step)} {low - int(value * unit)}" for at, value in enumerate(values)
    ]
    return "M" + "L".join(points)


def _label(done: Sequence[int], err: Sequence[int], depth: Sequence[int]) -> str:
    waiting = depth[-1] if depth else 0
    return (
        f"last hour: {sum(done)} done, {sum(err)} failed; "
        f"{waiting} waiting now, {max(depth, default=0)} at most"
    )
