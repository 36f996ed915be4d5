"""`rq`: the messages of queues as a table for Spark, or as a stream under leases, and
rows as messages of a queue.

Options of reading: `root`; `of` (`messages`, or `history`: all sealed events); `queue`
and `states` (several by comma; none: all); `status` (`false`: the file `status` is not
read, and its columns are null); `bad` (`keep`: what cannot be read is a row with a
`problem`); `partitions` (tasks, at most); `counts` (a file that gets a line of JSON for
each plan and each task: what was listed, read, skipped); `pushdown` (`false`: never).

Filters on `queue`, `state` and `date` prune directories before they are listed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import orjson
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from rq import config
from rq.errors import BadInput
from rq.layout import Root
from rq.spark import (
    folder_rows,
    folders_plan,
    journal_plan,
    journal_source,
    lease_options,
    sink,
)
from rq.spark.folder_rows import Counted, Reading
from rq.spark.folders_plan import Leaf, Wanted
from rq.spark.lease_stream import LeaseReader
from rq.states import COUNTED

NAME = "rq"
_HISTORY, _MESSAGES = "history", "messages"
_PUSHING_WORKER = "data_source_pushdown_filters"
_COLUMN = {"queue": "queues", "state": "states", "date": "dates"}
_RANGES = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


class RqSource(DataSource):
    """The source; Spark makes it from its options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        history = self.options.get("of") == _HISTORY
        return journal_source.SCHEMA if history else folder_rows.SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        if options.history:
            return HistoryReader(options)
        if options.pushdown and may_push(sys.argv):
            return PushingReader(options)
        return MessagesReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadInput('a queue can be added to only: say mode("append")')
        target = sink.target(self.options)
        sink.check_columns(schema.fieldNames(), self.options)
        return sink.QueueWriter(target)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LeaseReader(lease_options.parse_options(self.options))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        target = sink.target(self.options)
        sink.check_columns(schema.fieldNames(), self.options)
        return sink.QueueStreamWriter(target)


def may_push(argv: list[str]) -> bool:
    """Return whether Spark will push filters. It refuses a reader that takes filters
    while its setting forbids them, and does not tell readers the setting. But the program
    that pushes filters is another than the one that only plans; where it is not
    recognised, time is lost and no rows."""
    return any(_PUSHING_WORKER in word for word in argv)


# ---- options


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a reader, checked."""

    root: str
    reading: Reading
    history: bool = False
    queue: str | None = None  # of history
    partitions: int = 0
    counts: str | None = None
    pushdown: bool = True


def parse_options(options: Mapping[str, str]) -> Options:
    """Return what options ask for; BadInput names the wrong one."""
    of = _one_of(options, "of", (_MESSAGES, _HISTORY))
    queues = _list(options, "queue")
    states = _list(options, "states")
    unknown = (states or frozenset()) - frozenset(COUNTED)
    if unknown:
        choices = ", ".join(COUNTED)
        raise BadInput(f"states: {min(unknown)!r} is not one of {choices}")
    if of == _HISTORY and queues is not None and len(queues) > 1:
        raise BadInput("queue: history is read of one queue, or of all")
    return Options(
        root=str(config.find_root(options.get("root")).path),
        reading=Reading(
            Wanted(queues, states),
            status=_one_of(options, "status", ("true", "false")) == "true",
            keep_bad=_one_of(options, "bad", ("skip", "keep")) == "keep",
        ),
        history=of == _HISTORY,
        queue=next(iter(queues or ()), None),
        partitions=_number(options, "partitions"),
        counts=options.get("counts"),
        pushdown=_one_of(options, "pushdown", ("true", "false")) == "true",
    )


def _one_of(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = options.get(name, choices[0]).lower()
    if value not in choices:
        raise BadInput(f"{name}: {value!r:.60} is not {' or '.join(choices)}")
    return value


def _list(options: Mapping[str, str], name: str) -> frozenset[str] | None:
    parts = [part.strip() for part in options.get(name, "").split(",")]
    return frozenset(filter(None, parts)) or None


def _number(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not text.isdigit():
        raise BadInput(f"{name}: {text!r:.60} is not a whole number")
    return int(text)


# ---- messages


@dataclass(frozen=True)
class Share(InputPartition):
    """The directories that one task reads."""

    leaves: tuple[Leaf, ...]
    wanted: Wanted


class MessagesReader(DataSourceReader):
    """Reads message folders as they lie there now."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[InputPartition]:
        options, wanted = self.options, self.options.reading.wanted
        tasks = options.partitions or 2 * (os.cpu_count() or 1)
        planned = folders_plan.plan(Root(Path(options.root)), wanted, tasks)
        dealt = folders_plan.shares(planned.leaves, tasks)
        _count(options, {"listed": planned.listed, "leaves": len(planned.leaves)})
        return [Share(tuple(leaves), wanted) for leaves in dealt] or [Share((), wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        counted = Counted()
        reading = replace(self.options.reading, wanted=partition.wanted)
        yield from folder_rows.batches(list(partition.leaves), reading, counted)
        _count(self.options, counted.to_json())
        if counted.malformed or counted.moved:
            words = f"{counted.malformed} malformed, {counted.moved} moved meanwhile"
            print(f"rq: folders without a row: {words}", file=sys.stderr)  # noqa: T201


def _count(options: Options, numbers: Mapping[str, int]) -> None:
    """Write what was done into the file that the option `counts` names."""
    if options.counts:
        with Path(options.counts).open("ab", buffering=0) as file:
            file.write(orjson.dumps(numbers) + b"\n")


class PushingReader(DataSourceReader):
    """As MessagesReader, and takes filters."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        reading = self._options.reading
        for condition in filters:
            wanted = narrowed(reading.wanted, condition)
            if wanted is None:
                yield condition
            else:
                reading = replace(reading, wanted=wanted)
        self._options = replace(self._options, reading=reading)

    def partitions(self) -> list[InputPartition]:
        return MessagesReader(self._options).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return MessagesReader(self._options).read(partition)


def narrowed(wanted: Wanted, condition: Filter) -> Wanted | None:
    """Return what is wanted if a filter holds, too; None when Spark has to look."""
    column = getattr(condition, "attribute", ("",))[0]
    what = _COLUMN.get(column)
    if what is None:
        return None
    if isinstance(condition, EqualTo | EqualNullSafe):
        value = condition.value
        return None if value is None else wanted.only(what, _texts([value]))
    if isinstance(condition, In):
        return wanted.only(what, _texts(condition.value))
    if what == "dates" and isinstance(condition, _RANGES):
        return _in_range(wanted, condition)
    return None


def _in_range(
    wanted: Wanted,
    condition: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual,
) -> Wanted | None:
    """Return what is wanted within a range of dates. They compare as their eight digits
    do, so the next number is as good as the next day."""
    if not isinstance(condition.value, date):
        return None
    day = _digits(condition.value)
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        first = f"{day + isinstance(condition, GreaterThan):08d}"
        return replace(wanted, first=max(wanted.first, first))
    last = f"{day - isinstance(condition, LessThan):08d}"
    return replace(wanted, last=min(wanted.last, last))


def _digits(day: date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


def _texts(values: Iterable[object]) -> frozenset[str]:
    return frozenset(
        f"{_digits(value):08d}" if isinstance(value, date) else str(value)
        for value in values
    )


# ---- history


class HistoryReader(DataSourceReader):
    """Reads all events that are sealed now."""

    def __init__(self, options: Options) -> None:
        settings = {"root": options.root, "payload": "keep", "skip_gaps": "true"}
        if options.queue is not None:
            settings["queue"] = options.queue
        self._options = options
        self._events = journal_source.JournalReader(settings)

    def partitions(self) -> list[InputPartition]:
        root = Root(Path(self._options.root))
        journals = journal_plan.look(root, self._options.queue)
        end = journal_plan.latest(journals, {}, skip_gaps=True)
        shares = list(self._events.partitions({}, end))
        return shares or [journal_source.Share(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._events.read(partition)
