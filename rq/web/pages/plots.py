"""Pictures of the history, as the data of SVG paths; pure.

Scales end on round figures, so that the labels beside a picture, which are text of the
page, lie at even distances.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rq.words.wording import duration

WIDTH, HEIGHT = 600, 120
SHADES = 5  # of the heat map
_UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
_MOST_LABELS = 6


@dataclass(frozen=True, slots=True)
class Bars:
    """Stacked bars: what went well stands below what failed."""

    good: str
    bad: str
    top: int  # what the upper end of the picture stands for
    labels: list[str]  # from the top to the bottom


@dataclass(frozen=True, slots=True)
class Steps:
    """Lines of steps over a logarithmic scale."""

    lines: list[str]
    grid: str
    labels: list[str]  # from the top to the bottom


def bars(good: Sequence[int], bad: Sequence[int]) -> Bars:
    """Return a picture of what ended in each step of time."""
    top = _round_up(max(map(sum, zip(good, bad, strict=True)), default=0))
    return Bars(
        _bars([0] * len(good), good, top),
        _bars(good, bad, top),
        top,
        [f"{top:,}", f"{top // 2:,}" if top % 2 == 0 else "", "0"],
    )


def _round_up(number: int) -> int:
    """Return the next number that reads well.

    >>> [_round_up(n) for n in (0, 3, 7, 11, 230, 4001)]
    [2, 3, 8, 20, 300, 5000]
    """
    scale = 10 ** max(len(str(number)) - 1, 0)
    tops = (1, 2, 3, 4, 5, 6, 8, 10)
    return next((t * scale for t in tops if t * scale >= max(number, 2)), 2)


def _bars(below: Sequence[int], values: Sequence[int], top: int) -> str:
    step = WIDTH / max(len(values), 1)
    gap = min(step * 0.2, 3.0)
    parts = []
    for index, (base, value) in enumerate(zip(below, values, strict=True)):
        if not value:
            continue
        tall = max(value / top * HEIGHT, 1.0)
        upper = max(HEIGHT - base / top * HEIGHT - tall, 0.0)
        wide = step - gap
        left = index * step + gap / 2
        parts.append(f"M{left:.1f} {upper:.1f}h{wide:.1f}v{tall:.1f}h-{wide:.1f}z")
    return "".join(parts)


def steps(series: Sequence[Sequence[int | None]]) -> Steps:
    """Return lines of durations in µs, one for each series; None leaves a hole."""
    numbers = [value for line in series for value in line if value is not None]
    if not numbers:
        return Steps([], "", [])
    low = math.floor(math.log10(max(min(numbers), 1)))
    high = max(math.ceil(math.log10(max(*numbers, 1))), low + 1)
    each = math.ceil((high - low) / _MOST_LABELS)
    high = low + each * math.ceil((high - low) / each)
    marks = list(range(high, low - 1, -each))
    lines = ["".join(_steps(line, low, high)) for line in series]
    grid = "".join(f"M0 {_height(10.0**m, low, high):.1f}H{WIDTH}" for m in marks)
    return Steps(lines, grid, [_label(mark) for mark in marks])


def _steps(values: Sequence[int | None], low: int, high: int) -> Iterator[str]:
    wide = WIDTH / max(len(values), 1)
    drawing = False
    for index, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        at = f"{_height(max(value, 1), low, high):.1f}"
        yield f"V{at}" if drawing else f"M{index * wide:.1f} {at}"
        yield f"H{(index + 1) * wide:.1f}"
        drawing = True


def _height(value: float, low: int, high: int) -> float:
    return HEIGHT * (1 - (math.log10(value) - low) / (high - low))


def _label(power: int) -> str:
    """Return a power of ten of µs as people say it.

    >>> [_label(n) for n in (0, 4, 6, 9)]
    ['1 µs', '10 ms', '1 s', '1,000 s']
    """
    value = 10.0**power
    unit, name = next(unit for unit in _UNITS if value >= unit[0])
    return f"{value / unit:,.0f} {name}"


def shades(numbers: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return how strongly each cell of a heat map is coloured: 0 for nothing."""
    most = max((value for row in numbers for value in row), default=0)
    return [
        [math.ceil(math.sqrt(value / most) * SHADES) if value else 0 for value in row]
        for row in numbers
    ]


def took(micros: float | None) -> str:
    """Return a duration in µs as people say it.

    >>> [took(n) for n in (None, 0, 640, 12345, 2_400_000, 90_000_000)]
    ['-', '0 µs', '640 µs', '12 ms', '2.4 s', '1 min 30 s']
    """
    if micros is None:
        return "-"
    return f"{micros:.0f} µs" if micros < 1000 else duration(micros / 1e6)
