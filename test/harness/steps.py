"""Costs without clocks: how many steps of Python something takes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType


def lines(act: Callable[[], object]) -> int:
    """Return how many lines of Python run while `act` does: those of a loop count, be
    there calls in it or not."""
    count = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def steps(act: Callable[[], object]) -> int:
    """Return how many functions are called while `act` runs, those in C too."""
    return calls(act).total()


def calls(act: Callable[[], object]) -> Counter[str]:
    """Return how often each function is called while `act` runs, by its name."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            counts[frame.f_code.co_name] += 1
        elif event == "c_call":
            counts[getattr(arg, "__name__", "")] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return counts
