"""The hours of a day as they were computed last: `gold/hours/date=D.json`.

A private file of rounds. Where it is missing, or older than what was published, the whole
day is computed anew: so a history of before there were such files goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, cast

import orjson

from rq import config
from rq.config import files
from rq.errors import BadConfig
from rq.nesting import Json
from rq.published import COUNTS
from rq.spark.gold_parts import Hour, Part


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


def read(gold: Path, date: str, upto: int) -> dict[int, Hour] | None:
    """Return the hours of a day; None when they are not known up to that batch."""
    try:
        file = cast(_File, config.read_json(_path(gold, date)))
    except BadConfig:
        return None
    if file["upto"] < upto:
        return None
    return {int(number): _hour(each) for number, each in file["hours"].items()}


def write(gold: Path, date: str, upto: int, hours: Mapping[int, Hour]) -> None:
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
