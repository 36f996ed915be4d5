"""What monitors measure of a queue: counted where an event is written, never by listing.

Counters begin at 0 with the process and never go back within it, as Prometheus expects; one
that was parked goes on.
They are additions to numbers that are there, after the line and the memory that follows
it: nothing here may fail, or hold up what is accepted. A histogram counts each value in
one bucket; who shows it adds them up.

`Durations` keeps, for the last day, how long attempts ran, in buckets that grow by a
quarter: fine enough to say that an attempt runs four times as long as others do.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rq.replies.queue import BUCKETS, FiguresView
from rq.spool.record import Record
from rq.words.states import Event, State

OUTCOMES: Mapping[str, str] = {
    str(event): outcome
    for event, outcome in (
        (Event.FINISH, "done"),
        (Event.RELAY, "relayed"),
        (Event.FAIL, "failed"),
        (Event.RETRY, "retry"),
        (Event.RECOVER, "lost"),
        (Event.REQUEUE, "given_back"),
    )
}
_HOUR = 3600.0
_HOURS = 24
_FIRST = 0.001  # seconds: what is shorter is as short
_GROWS = math.log(1.25)
_MOST = 100  # buckets of `Durations`: the last begins after 49 days


class Histogram:
    """How often values lay between two bounds of BUCKETS."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    @classmethod
    def going_on(cls, numbers: Sequence[float]) -> Histogram:
        """Return one that adds to `numbers`: those in each bucket, then the sum. ValueError:
        they are of other buckets."""
        histogram = cls()
        if len(numbers) != len(histogram.counts) + 1:
            raise ValueError("numbers of other buckets")
        *counts, total = numbers
        histogram.counts, histogram.sum = [int(each) for each in counts], float(total)
        return histogram


class Figures:
    """The counters of one queue."""

    def __init__(self) -> None:
        self.accepted = 0
        self.attempts: dict[str, int] = {}  # by outcome
        self.ended: dict[tuple[str, str], int] = {}  # by state and cause
        self.wait = Histogram()
        self.run = Histogram()
        self.durations = Durations()
        # Told of each message that fails, by its line; it may not raise.
        self.on_failure: Callable[[Record], None] | None = None

    def go_on_from(self, before: FiguresView) -> None:
        """Add to what was counted before the queue was parked: to monitors that is no new
        start, and what came while it was awake in between they would never see. What was
        left is a cache: of numbers that cannot be gone on from all begin at 0."""
        try:
            wait, run = map(Histogram.going_on, (before["wait"], before["run"]))
            attempts = {word: int(n) for word, n in before["attempts"].items()}
            ended = {(state, cause): int(n) for state, cause, n in before["ended"]}
            self.accepted = int(before["accepted"])
        except (LookupError, TypeError, ValueError, AttributeError):
            return
        self.attempts, self.ended, self.wait, self.run = attempts, ended, wait, run

    def take(self, record: Record) -> None:
        """Count an event."""
        if record["ev"] is Event.COMMIT:
            self.accepted += 1
            return
        source, target = record["was"], record["state"]
        if source is State.RUN:
            outcome = OUTCOMES[str(record["ev"])]
            self.attempts[outcome] = self.attempts.get(outcome, 0) + 1
            self._measure(record)
        # Compared one by one: the hash of a word is a call, and costs more than all else.
        is_end = target is State.DONE or target is State.RELAYED or target is State.ERR
        was_live = source is State.RUN or source is State.QUE or source is State.NOWHERE
        if is_end and was_live:
            ended = str(target), record.get("cause", "")
            self.ended[ended] = self.ended.get(ended, 0) + 1
            if target is State.ERR and self.on_failure is not None:
                self.on_failure(record)

    def _measure(self, record: Record) -> None:
        if (wait := record.get("wait_us")) is not None:
            self.wait.add(wait / 1e6)
        if (run := record.get("run_us")) is not None:
            self.run.add(run / 1e6)
            self.durations.add(run / 1e6, record["ts"] / 1e6)


class Durations:
    """How long the attempts of the last day ran, by the hour."""

    def __init__(self) -> None:
        self._hours: deque[tuple[int, dict[int, int]]] = deque(maxlen=_HOURS)

    def add(self, seconds: float, now: float) -> None:
        hour = int(now // _HOUR)
        # A clock that was put back goes on with the hour that is newest.
        if not self._hours or self._hours[-1][0] < hour:
            self._hours.append((hour, {}))
        counts = self._hours[-1][1]
        bucket = _bucket(seconds)
        counts[bucket] = counts.get(bucket, 0) + 1

    def quantiles(self, parts: Sequence[float], now: float) -> tuple[int, list[float]]:
        """Return of how many attempts, and the seconds within which a part of them ran."""
        oldest = int(now // _HOUR) - _HOURS
        counts: dict[int, int] = {}
        for hour, numbers in self._hours:
            for bucket, number in numbers.items() if hour > oldest else ():
                counts[bucket] = counts.get(bucket, 0) + number
        total = sum(counts.values())
        return total, [_quantile(counts, total * part) for part in parts]

    def saved(self) -> list[object]:
        """Return what `restored` takes."""
        return [[hour, sorted(counts.items())] for hour, counts in self._hours]

    def restored(self, saved: object) -> None:
        """Go on with what an earlier process has saved, if it is as it should be."""
        try:
            hours = [
                (int(hour), {int(bucket): int(number) for bucket, number in counts})
                for hour, counts in saved  # type: ignore[attr-defined]
            ]
        except (TypeError, ValueError):
            return
        self._hours.extend(hours)


def _bucket(seconds: float) -> int:
    if seconds <= _FIRST:
        return 0
    return min(_MOST, math.ceil(math.log(seconds / _FIRST) / _GROWS))


def _quantile(counts: Mapping[int, int], wanted: float) -> float:
    """Return the upper bound of the bucket in which the value lies."""
    passed = 0
    for bucket in sorted(counts):
        passed += counts[bucket]
        if passed >= wanted:
            return float(_FIRST * math.exp(bucket * _GROWS))
    return 0.0
