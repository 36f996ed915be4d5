"""The figures of hours and days: what adds up, and how a day is made from its hours.

Counts, causes, histograms and moves of a day are the sums of its hours, and the slowest of
a day are among those of its hours. Percentiles do not add up: of a day they are about,
from its histogram, until a round has counted the whole day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

import orjson

from rq import config, published
from rq.config import files
from rq.errors import BadConfig
from rq.message.causes import Cause
from rq.published import COUNTS, PERCENTS
from rq.words.nesting import Json
from rq.words.states import State

SLOWEST = 10  # of a queue and day


@dataclass(slots=True)
class Part:
    """What happened to a queue in an hour, or to more than that."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    causes: dict[str, int] = field(default_factory=dict)
    wait: list[int] = field(default_factory=list)  # percentiles, µs
    run: list[int] = field(default_factory=list)
    wait_hist: list[int] = field(default_factory=list)
    run_hist: list[int] = field(default_factory=list)

    @property
    def attempts(self) -> int:
        return sum(self.run_hist)

    def count(self, name: str | None, cause: str | None, row: Moved) -> None:
        """Add equal events."""
        if name is not None:
            self.counts[name] += row.messages + row.riders
        if cause is not None:
            add(self.causes, cause, row.lines)
        add(self.causes, Cause.DUPLICATE, row.riders)

    def to_json(self) -> dict[str, Json]:
        return {
            **self.counts,
            "attempts": self.attempts,
            "wait": self.wait,
            "run": self.run,
            "wait_hist": self.wait_hist,
            "run_hist": self.run_hist,
            "causes": dict(sorted(self.causes.items())),
        }


@dataclass(frozen=True, slots=True)
class Moved:
    """How many equal events there are, and how many messages they tell of."""

    lines: int
    messages: int
    riders: int


@dataclass(slots=True)
class Hour:
    """The gold of an hour."""

    parts: dict[str | None, Part] = field(default_factory=dict)  # by queue; None: all
    moves: dict[str, dict[str, int]] = field(default_factory=dict)  # by journal
    slowest: list[dict[str, Json]] = field(default_factory=list)
    lines: int = 0

    def of(self, queue: str | None) -> Part:
        return self.parts.setdefault(queue, Part())

    def move(self, journal: str, was: str, state: str, row: Moved) -> None:
        """Add equal events to the moves between states."""
        moves = self.moves.setdefault(journal, {})
        _move(moves, was, state, row.messages)
        _move(moves, State.QUE, state, row.riders)
        self.lines += row.lines


@dataclass(slots=True)
class Day:
    """The gold of one day; the keys are queue and hour, None: all of them."""

    parts: dict[tuple[str | None, int | None], Part] = field(default_factory=dict)
    moves: dict[str, dict[str, int]] = field(default_factory=dict)  # by journal
    slowest: list[dict[str, Json]] = field(default_factory=list)
    lines: int = 0
    exact: bool = False  # whether the percentiles of the whole day are

    def be_exact(self, counted: Mapping[str | None, Part]) -> None:
        """Take the percentiles of the whole day from parts that have them, by queue."""
        for queue, part in counted.items():
            whole = self.parts[queue, None]
            whole.wait, whole.run = part.wait, part.run
        self.exact = True


def day_of(hours: Mapping[int, Hour]) -> Day:
    """Return the day that has these hours; its percentiles are about."""
    day = Day(lines=sum(hour.lines for hour in hours.values()))
    by_queue: dict[str | None, list[Part]] = {}
    for number, hour in hours.items():
        for queue, part in hour.parts.items():
            day.parts[queue, number] = part
            by_queue.setdefault(queue, []).append(part)
        for journal, moves in hour.moves.items():
            _add_all(day.moves.setdefault(journal, {}), moves)
    for queue, parts in by_queue.items():
        day.parts[queue, None] = _sum_of(parts)
    day.slowest = _slowest(row for hour in hours.values() for row in hour.slowest)
    return day


def _sum_of(parts: Iterable[Part]) -> Part:
    total = Part()
    for part in parts:
        for name, number in part.counts.items():
            total.counts[name] += number
        _add_all(total.causes, part.causes)
        total.wait_hist = published.added((total.wait_hist, part.wait_hist))
        total.run_hist = published.added((total.run_hist, part.run_hist))
    total.wait, total.run = _about(total.wait_hist), _about(total.run_hist)
    return total


def _about(histogram: list[int]) -> list[int]:
    values = [published.percentile(histogram, percent) for percent in PERCENTS]
    return [round(value) for value in values if value is not None]


def _slowest(rows: Iterable[dict[str, Json]]) -> list[dict[str, Json]]:
    """Return the slowest of each queue, those of all queues in one order."""
    kept: list[dict[str, Json]] = []
    number: dict[Json, int] = {}
    for row in sorted(rows, key=_slower):
        number[row["queue"]] = number.get(row["queue"], 0) + 1
        if number[row["queue"]] <= SLOWEST:
            kept.append(row)
    return kept


def _slower(row: Mapping[str, Json]) -> tuple[int, str, int]:
    took, seq = row["run_us"], row["seq"]
    assert isinstance(took, int)
    assert isinstance(seq, int)
    return -took, str(row["journal"]), seq


def _move(moves: dict[str, int], was: str, state: str, number: int) -> None:
    # What is prepared is in no journal, so that nothing can be said of it.
    if was not in (State.NOWHERE, State.PREP):
        add(moves, was, -number)
    if state not in (State.GONE, State.PREP):
        add(moves, state, number)


def add(counts: dict[str, int], name: str, number: int) -> None:
    """Add to what is counted under a name; what is 0 needs no name."""
    if number:
        counts[str(name)] = counts.get(name, 0) + number


def _add_all(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        add(counts, name, number)


def summed(
    days: Iterable[Mapping[str, Mapping[str, int]]], journals: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """Return how many messages of each queue are in which state after the moves of all
    days; `journals` names the queue of each journal that counts."""
    total: dict[str, dict[str, int]] = {queue: {} for queue in journals.values()}
    for moves in days:
        for journal, states in moves.items():
            if journal in journals:
                _add_all(total[journals[journal]], states)
    return total


# ---- the hours of a day as they were computed last: `gold/hours/date=D.json`
#
# A private file of rounds. Where it is missing, or older than what was published, the whole
# day is computed again.


class _PartJson(TypedDict):
    """A part, beside the numbers that COUNTS names."""

    queue: str | None
    causes: dict[str, int]
    wait: list[int]
    run: list[int]
    wait_hist: list[int]
    run_hist: list[int]


class _HourJson(TypedDict):
    """An hour."""

    parts: list[_PartJson]
    moves: dict[str, dict[str, int]]
    slowest: list[dict[str, Json]]
    lines: int


class _File(TypedDict):
    """The file."""

    upto: int  # the last batch that is in it
    hours: dict[str, _HourJson]


def read_hours(gold: Path, date: str, upto: int) -> dict[int, Hour] | None:
    """Return the hours of a day; None when they are not known up to that batch."""
    try:
        file = cast(_File, config.read_json(_path(gold, date)))
    except BadConfig:
        return None
    if file["upto"] < upto:
        return None
    return {int(number): _hour(each) for number, each in file["hours"].items()}


def write_hours(gold: Path, date: str, upto: int, hours: Mapping[int, Hour]) -> None:
    """Replace the hours of a day."""
    path = _path(gold, date)
    files.make_dir(path.parent)
    held = {str(number): _hour_json(hours[number]) for number in sorted(hours)}
    data = orjson.dumps({"upto": upto, "hours": held})
    files.write_text(path, data.decode() + "\n")


def _path(gold: Path, date: str) -> Path:
    return gold / "hours" / f"date={date}.json"


def _hour(each: _HourJson) -> Hour:
    parts = {part["queue"]: _part(part) for part in each["parts"]}
    return Hour(parts, each["moves"], each["slowest"], each["lines"])


def _part(part: _PartJson) -> Part:
    counts = {name: cast(Mapping[str, int], part)[name] for name in COUNTS}
    durations = (part["wait"], part["run"], part["wait_hist"], part["run_hist"])
    return Part(counts, part["causes"], *durations)


def _hour_json(hour: Hour) -> dict[str, Json]:
    return {
        "parts": [{"queue": q, **part.to_json()} for q, part in hour.parts.items()],
        "moves": hour.moves,
        "slowest": hour.slowest,
        "lines": hour.lines,
    }
