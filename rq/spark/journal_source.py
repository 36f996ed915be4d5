"""`rq_journal`: the sealed events of all queues as a stream for Spark.

Between two offsets the same rows come back, whatever was sealed, compressed or merged
meanwhile. Options: `root`; `queue` (one only); `rows` (of a batch, at most); `skip_gaps`;
`payload` (`keep`: the column `message` holds what the messages say).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rq.layout import Root
from rq.spark import journal_plan
from rq.spark.journal_plan import Journal, Stretch
from rq.words.nesting import Json

NAME = "rq_journal"
ROWS = 1_000_000  # of a batch
_TASK_ROWS = 100_000  # of a task, about
_ARROW_ROWS = 8192

# Only ever added to: files of years are read with it.
COLUMNS: tuple[tuple[str, str], ...] = (
    ("journal", "string"),
    ("seq", "bigint"),
    ("ts", "bigint"),  # µs since the epoch, UTC
    ("queue", "string"),
    ("msg", "string"),
    ("ev", "string"),
    ("was", "string"),
    ("state", "string"),
    ("count", "int"),
    ("attempt", "int"),
    ("due", "double"),
    ("cause", "string"),
    ("outcome", "string"),
    ("text", "string"),
    ("exit", "int"),
    ("signal", "string"),
    ("wait_us", "bigint"),
    ("run_us", "bigint"),
    ("cpu_us", "bigint"),
    ("max_rss", "bigint"),
    ("created_us", "bigint"),
    ("riders", "array<string>"),
    ("msgs", "array<string>"),
    ("message", "string"),
    ("extra", "string"),  # JSON of every other field
    # Of the batch that the message was in, if its result says them.
    ("rows_in", "bigint"),
    ("rows_out", "bigint"),
    ("rejected", "bigint"),
    ("spark_us", "bigint"),
    ("by", "string"),  # who has sent the message, in lines that hold it
)
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS)
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "array<string>": pa.list_(pa.string()),
}
ARROW_SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS])
_FIGURES = ("rows_in", "rows_out", "rejected", "spark_us")
_COMPUTED = ("journal", "message", "extra", "by", *_FIGURES)
_PLAIN = [name for name, _ in COLUMNS if name not in _COMPUTED]
# What a line says of its file, and what has a column.
_COLUMNS_OF_LINES = frozenset({"crc", "g", "end", "message", *_PLAIN})


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads."""

    parts: tuple[Stretch, ...]


class JournalSource(DataSource):
    """The source; Spark makes it from its options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return JournalReader(dict(self.options))


class JournalReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells Spark how far it can read, and reads."""

    def __init__(self, options: dict[str, str]) -> None:
        self._root = Root(Path(options["root"]))
        self._queue = options.get("queue")
        self._rows = int(options.get("rows", ROWS))
        self._skip_gaps = options.get("skip_gaps", "false") == "true"
        self._payload = options.get("payload") == "keep"
        self._until: dict[str, int] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is sealed now, though more will come."""
        journals = journal_plan.look(self._root, self._queue)
        self._until = journal_plan.latest(journals, {}, skip_gaps=True)

    def latestOffset(  # noqa: N802
        self, start: dict[str, int], limit: ReadLimit
    ) -> dict[str, int]:
        unlimited = isinstance(limit, ReadAllAvailable)
        rows = None if unlimited else int(getattr(limit, "max_rows", self._rows))
        return journal_plan.latest(
            journal_plan.look(self._root, self._queue),
            start,
            rows=rows,
            until=self._until,
            skip_gaps=self._skip_gaps,
        )

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[InputPartition]:
        return shares(journal_plan.look(self._root, self._queue), start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        for part in partition.parts:
            events = journal_plan.read(part)
            while rows := list(islice(events, _ARROW_ROWS)):
                yield _batch(part.journal, rows, self._payload)


def shares(
    journals: Sequence[Journal], start: Mapping[str, int], end: Mapping[str, int]
) -> list[InputPartition]:
    """Give each task about as many events between two offsets; what is small goes
    together. Damaged: some of them are no longer there."""
    dealt: list[InputPartition] = []
    held: list[Stretch] = []
    for stretch in journal_plan.stretches(journals, start, end, _TASK_ROWS):
        if held and sum(part.rows for part in held) + stretch.rows > _TASK_ROWS:
            dealt.append(Share(tuple(held)))
            held = []
        held.append(stretch)
    if held:
        dealt.append(Share(tuple(held)))
    return dealt


def _batch(
    journal: str, rows: Sequence[Mapping[str, Json]], payload: bool
) -> pa.RecordBatch:
    columns: dict[str, Sequence[Json]] = {
        name: [row.get(name) for row in rows] for name in _PLAIN
    }
    columns["journal"] = [journal] * len(rows)
    columns["message"] = [_message(row) if payload else None for row in rows]
    columns["by"] = [_sender(row.get("message")) for row in rows]
    columns["extra"] = [_extra(row) for row in rows]
    figures = [_figures(row.get("result")) for row in rows]
    columns |= {name: [each.get(name) for each in figures] for name in _FIGURES}
    arrays = [pa.array(columns[field.name], field.type) for field in ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _message(row: Mapping[str, Json]) -> str | None:
    message = row.get("message")
    return None if message is None else orjson.dumps(message).decode()


def _sender(message: Json) -> Json:
    """Return who has sent a message. A line's own `by`, who did something to it, is not
    meant: that is in `extra`."""
    by = message.get("by") if isinstance(message, dict) else None
    return by if isinstance(by, str) else None


def _figures(result: Json) -> Mapping[str, Json]:
    """Return the figures that a result says: whole numbers of its JSON."""
    if not isinstance(result, str) or not result.startswith("{"):
        return {}
    try:
        said: Json = orjson.loads(result)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(said, dict):
        return {}
    return {
        name: value
        for name, value in said.items()
        if name in _FIGURES and type(value) is int and 0 <= value < 2**63
    }


def _extra(row: Mapping[str, Json]) -> str | None:
    others = row.keys() - _COLUMNS_OF_LINES
    if not others:
        return None
    return orjson.dumps({name: row[name] for name in sorted(others)}).decode()
