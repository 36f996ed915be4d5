"""Costs without clocks: how many steps of Python something takes."""

from __future__ import annotations

import sys
from collections.abc import Callable


def steps(act: Callable[[], object]) -> int:
    """Return how many functions are called while `act` runs, those in C too."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls
