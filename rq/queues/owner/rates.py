"""Counters by the minute, for the last hour: what came, what ended, what waited or was leased.

They outlive the process: `saved` goes into a file now and then, and `restored` takes it
up again. It is no promise: a kill forgets the last minute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

STEP = 60  # seconds
KEPT = 60  # steps
_COUNTED = ("accepted", "done", "err", "depth", "leased")


class Rates:
    """Counts events as they happen; nothing is ever counted by listing."""

    def __init__(self) -> None:
        self.changed = False  # since `saved` was asked
        self._minute = 0
        self._steps: deque[dict[str, int]] = deque(maxlen=KEPT)

    def count(self, what: str, now: float, depth: int, leased: int = 0) -> None:
        """Count one of `accepted`, `done` or `err`; `depth` is what waits in que, `leased`
        what is at work elsewhere."""
        step = self._at(now, depth, leased)
        step[what] += 1
        step["depth"] = depth
        step["leased"] = leased
        self.changed = True

    def _at(self, now: float, depth: int, leased: int) -> dict[str, int]:
        minute = int(now // STEP)
        missing = min(minute - self._minute, KEPT) if self._steps else 1
        last = self._steps[-1] if self._steps else {"depth": depth, "leased": leased}
        still = {"depth": last["depth"], "leased": last["leased"]}
        for _ in range(missing):
            self._steps.append({"accepted": 0, "done": 0, "err": 0, **still})
        self._minute = max(self._minute, minute)
        return self._steps[-1]

    def to_json(
        self, now: float, depth: int, leased: int = 0
    ) -> dict[str, int | list[int]]:
        """Return the steps, oldest first, always KEPT of them."""
        self._at(now, depth, leased).update(depth=depth, leased=leased)
        columns: dict[str, int | list[int]] = {"step": STEP}
        for what in _COUNTED:
            values = [step[what] for step in self._steps]
            columns[what] = [0] * (KEPT - len(values)) + values
        return columns

    def saved(
        self, now: float, wall: float, depth: int, leased: int = 0
    ) -> Mapping[str, object]:
        """Return what `restored` takes; `wall`, the time of day, outlives the machine."""
        self.changed = False
        return {**self.to_json(now, depth, leased), "at": int(wall // STEP)}

    def restored(self, saved: Mapping[str, object], now: float, wall: float) -> None:
        """Go on with what an earlier process has saved, as far as it is of this hour.

        Values of another form are ignored, and so are those saved with another STEP.
        """
        steps, at = _steps(saved), saved.get("at")
        if not steps or not isinstance(at, int):
            return
        away = int(wall // STEP) - at
        if away >= KEPT:
            return
        self._steps.extend(steps)
        # A clock that was put back meanwhile makes the past end now.
        self._minute = int(now // STEP) - max(0, away)


def _steps(saved: Mapping[str, object]) -> list[dict[str, int]]:
    """Return the saved steps, oldest first; nothing if they are not as they should be."""
    # An older RQ did not count what is leased.
    values = ({"leased": [0] * KEPT, **saved}.get(what) for what in _COUNTED)
    columns = [column for column in values if isinstance(column, list)]
    if saved.get("step") != STEP or len(columns) < len(_COUNTED):
        return []
    if any(len(column) != KEPT for column in columns):
        return []
    rows = list(zip(*columns, strict=True))
    if not all(isinstance(n, int) and n >= 0 for row in rows for n in row):
        return []
    return [dict(zip(_COUNTED, row, strict=True)) for row in rows]
