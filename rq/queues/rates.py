"""Counters by the minute, for the last hour: what came, what ended, what waited."""

from __future__ import annotations

from collections import deque
from typing import Any

STEP = 60  # seconds
KEPT = 60  # steps


class Rates:
    """Counts events as they happen; nothing is ever counted by listing."""

    def __init__(self) -> None:
        self._minute = 0
        self._steps: deque[dict[str, int]] = deque(maxlen=KEPT)

    def count(self, what: str, now: float, depth: int) -> None:
        """Count one of `accepted`, `done` or `err`; `depth` is what waits in que."""
        step = self._at(now, depth)
        step[what] += 1
        step["depth"] = depth

    def _at(self, now: float, depth: int) -> dict[str, int]:
        minute = int(now // STEP)
        missing = min(minute - self._minute, KEPT) if self._steps else 1
        before = self._steps[-1]["depth"] if self._steps else depth
        for _ in range(missing):
            self._steps.append({"accepted": 0, "done": 0, "err": 0, "depth": before})
        self._minute = max(self._minute, minute)
        return self._steps[-1]

    def to_json(self, now: float, depth: int) -> dict[str, Any]:
        """Return the steps, oldest first, always KEPT of them."""
        self._at(now, depth)["depth"] = depth
        shown: dict[str, Any] = {"step": STEP}
        for what in ("accepted", "done", "err", "depth"):
            values = [step[what] for step in self._steps]
            shown[what] = [0] * (KEPT - len(values)) + values
        return shown
