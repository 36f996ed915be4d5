"""Sparklines from kept counters, as the data of SVG paths; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EMPTY: dict[str, list[int]] = {
    "accepted": [],
    "done": [],
    "err": [],
    "depth": [],
}


def spark(series: Mapping[str, Any]) -> dict[str, Any]:
    """Return the small picture of a queue's last hour: bars that ended, line of depth."""
    return _picture(series, 60, 20)


def chart(series: Mapping[str, Any]) -> dict[str, Any]:
    """Return the large picture; the same, with more room."""
    return _picture(series, 600, 72)


def _picture(series: Mapping[str, Any], width: int, height: int) -> dict[str, Any]:
    done, err = _numbers(series, "done"), _numbers(series, "err")
    depth = _numbers(series, "depth")
    ended = [good + bad for good, bad in zip(done, err, strict=False)]
    most, deepest = max(ended, default=0), max(depth, default=0)
    room = height - 1
    line = _line(depth, deepest, width, room)
    return {
        "width": width,
        "height": height,
        "bars": _bars([0] * len(err), done, most, width, room),
        "bars_bad": _bars(done, err, most, width, room),
        "depth": line,
        "depth_fill": f"{line}V{height}H0Z" if line else "",
        "most": most,
        "deepest": deepest,
        "done": sum(done),
        "err": sum(err),
        "accepted": sum(_numbers(series, "accepted")),
        "label": _label(done, err, depth),
    }


def _numbers(series: Mapping[str, Any], name: str) -> Sequence[int]:
    found = series.get(name)
    return found if isinstance(found, list) else []


def _bars(
    below: Sequence[int], values: Sequence[int], most: int, width: int, room: int
) -> str:
    """Return bars that stand on `below`, one for each value that is not 0."""
    if not most:
        return ""
    step = width / len(values)
    wide = step * 0.72
    parts = []
    for index, (base, value) in enumerate(zip(below, values, strict=False)):
        if value:
            top = room - (base + value) / most * (room - 1)
            tall = max(value / most * (room - 1), 0.8)
            parts.append(
                f"M{index * step:.1f} {top:.1f}h{wide:.1f}v{tall:.1f}h-{wide:.1f}z"
            )
    return "".join(parts)


def _line(values: Sequence[int], most: int, width: int, room: int) -> str:
    """Return a line through the values; none when nothing ever waited."""
    if not most:
        return ""
    step = width / max(len(values) - 1, 1)
    points = [
        f"{index * step:.1f} {room - value / most * (room - 2):.1f}"
        for index, value in enumerate(values)
    ]
    return "M" + "L".join(points)


def _label(done: Sequence[int], err: Sequence[int], depth: Sequence[int]) -> str:
    waiting = depth[-1] if depth else 0
    return (
        f"last hour: {sum(done)} done, {sum(err)} failed; "
        f"{waiting} waiting now, {max(depth, default=0)} at most"
    )
