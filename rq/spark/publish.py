"""Publishing gold: Parquet for tools, small JSON for pages; each file changes at once.

The day's files come first and `index.json` last. `days.json` remembers which batches each
day was made of: a round that was cut off is made up for by the next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from rq import config, published
from rq.config import files
from rq.errors import BadConfig
from rq.spark.bronze import NOTHING
from rq.spark.gold_parts import Day, Part, summed
from rq.words.nesting import Json

_HOWEVER_MANY = pa.list_(pa.int64())
_PART = pa.schema(
    [("queue", pa.string()), ("hour", pa.int32())]
    + [(name, pa.int64()) for name in (*published.COUNTS, "attempts")]
    + [(name, _HOWEVER_MANY) for name in ("wait", "run", "wait_hist", "run_hist")]
    + [("causes", pa.map_(pa.string(), pa.int64()))]
    + [("exact", pa.bool_())]  # whether wait and run are
)
_SLOWEST = pa.schema(
    [("queue", pa.string()), ("msg", pa.string()), ("cause", pa.string())]
    + [(name, pa.int64()) for name in ("ts", "run_us", "wait_us")]
    + [("journal", pa.string()), ("seq", pa.int64())]
)


class BuiltDay(TypedDict):
    """What of a day was published."""

    upto: int  # the last batch
    lines: int
    moves: Mapping[str, Mapping[str, int]]
    exact: NotRequired[bool]  # whether its percentiles are; once they always were


class _Days(TypedDict):
    """The file `days.json`."""

    number: str
    days: Mapping[str, BuiltDay]


@dataclass(frozen=True, slots=True)
class Built:
    """What of each day was published: up to which batch, and what it moved."""

    number: str  # of the directory that it came from
    days: Mapping[str, BuiltDay]

    def upto(self, date: str) -> int:
        return self.days[date]["upto"] if date in self.days else NOTHING

    def exact(self, date: str) -> bool:
        return date in self.days and self.days[date].get("exact", True)


def built(place: published.Place, number: str) -> Built:
    """Return what was published from the directory `number`."""
    try:
        file = cast(_Days, config.read_json(place.days))
    except BadConfig:
        return Built(number, {})
    return Built(number, file["days"] if file["number"] == number else {})


def write_days(
    place: published.Place,
    before: Built,
    days: Mapping[str, Day],
    upto: Mapping[str, int],
    as_of: float,
) -> Built:
    """Write the files of days; return what is published by now."""
    every = dict(before.days)
    for date, day in days.items():
        _write(place.day(date), _day_json(date, day, as_of))
        every[date] = {
            "upto": upto[date],
            "lines": day.lines,
            "moves": day.moves,
            "exact": day.exact,
        }
    _write(place.days, {"number": before.number, "days": every})
    return Built(before.number, every)


def write_index(
    place: published.Place, done: Built, as_of: float, journals: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """Write the index; return how many messages of each queue are in which state.

    `journals` names the queues of those that there are: the messages of a queue that was
    removed went with it, though the history goes on telling what it did.
    """
    counts = summed((day["moves"] for day in done.days.values()), journals)
    index = {
        "as_of": as_of,
        "written": time.time(),
        "days": sorted(done.days),
        "events": sum(day["lines"] for day in done.days.values()),
        "counts": {name: counts[name] for name in sorted(counts)},
    }
    _write(place.index, index)
    return counts


def _write(path: Path, data: object) -> None:
    files.write_text(path, orjson.dumps(data).decode() + "\n")


def _day_json(date: str, day: Day, as_of: float) -> dict[str, Json]:
    return {
        "date": date,
        "as_of": as_of,
        "exact": day.exact,
        "parts": _parts_json(day),
        "slowest": day.slowest,
    }


def _parts_json(day: Day) -> list[dict[str, Json]]:
    return [
        {"queue": queue, "hour": hour, **part.to_json()}
        for (queue, hour), part in sorted(day.parts.items(), key=_order)
    ]


def _order(item: tuple[tuple[str | None, int | None], Part]) -> tuple[str, int]:
    (queue, hour), _ = item
    return queue or "", -1 if hour is None else hour


# ---- Parquet


def write_parquet(path: Path, days: Mapping[str, Day]) -> None:
    """Replace these days in `hourly`, `totals` and `slowest`: a file for each day."""
    for date, day in days.items():
        parts = [
            {**part, "exact": day.exact or part["hour"] is not None}
            for part in _parts_json(day)
        ]
        for table, rows, columns in (
            ("hourly", [part for part in parts if _is_hour(part)], _PART),
            ("totals", [part for part in parts if not _is_hour(part)], _PART),
            ("slowest", day.slowest, _SLOWEST),
        ):
            directory = path / table / f"date={date}"
            files.make_dir(directory)
            files.write_bytes(directory / "part.parquet", _parquet(rows, columns))


def _is_hour(part: Mapping[str, Json]) -> bool:
    return part["queue"] is not None and part["hour"] is not None


def _parquet(rows: Sequence[Mapping[str, Json]], columns: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    shaped = [
        {**row, "causes": list(causes.items())}
        if isinstance(causes := row.get("causes"), dict)
        else row
        for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(shaped, columns), sink, compression="zstd")
    return bytes(sink.getvalue())
