"""`rq`: the messages of queues as a table for Spark, and rows as messages of a queue.

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
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
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
from rq.spark import folder_rows, folders_plan, journal_plan, journal_source, sink
from rq.spark.folder_rows import Counted, Reading
from rq.spark.folders_plan import Leaf, Wanted
from rq.spool.entry import COUNTED

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
        asked = asked_for(self.options)
        if asked.history:
            return HistoryReader(asked)
        if asked.pushdown and may_push(sys.argv):
            return PushingReader(asked)
        return MessagesReader(asked)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadInput('a queue can be added to only: say mode("append")')
        return sink.QueueWriter(sink.target(self.options))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        return sink.QueueStreamWriter(sink.target(self.options))


def may_push(argv: list[str]) -> bool:
    """Return whether filters are being pushed: Spark refuses a reader that takes them
    while its setting says no, and a reader is not told. The program that asks for one
    to give it filters is another than that which only plans; not to recognise it costs
    time, never rows."""
    return any(_PUSHING_WORKER in word for word in argv)


# ---- options


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a reader, checked."""

    root: str
    reading: Reading
    history: bool = False
    queue: str | None = None  # of history
    partitions: int = 0
    counts: str | None = None
    pushdown: bool = True


def asked_for(options: Mapping[str, str]) -> Asked:
    """Return what options ask for; BadInput names the wrong one."""
    of = _one_of(options, "of", (_MESSAGES, _HISTORY))
    queues = _list(options, "queue")
    states = _list(options, "states")
    unknown = (states or frozenset()) - frozenset(COUNTED)
    if unknown:
        known = ", ".join(COUNTED)
        raise BadInput(f"states: {min(unknown)!r} is not one of {known}")
    if of == _HISTORY and queues is not None and len(queues) > 1:
        raise BadInput("queue: history is read of one queue, or of all")
    return Asked(
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


def _one_of(options: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = options.get(name, known[0]).lower()
    if value not in known:
        raise BadInput(f"{name}: {value!r:.60} is not {' or '.join(known)}")
    return value


def _list(options: Mapping[str, str], name: str) -> frozenset[str] | None:
    parts = [one.strip() for one in options.get(name, "").split(",")]
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

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def partitions(self) -> list[InputPartition]:
        asked, wanted = self.asked, self.asked.reading.wanted
        tasks = asked.partitions or 2 * (os.cpu_count() or 1)
        found = folders_plan.plan(Root(Path(asked.root)), wanted, tasks)
        dealt = folders_plan.shares(found.leaves, tasks)
        _count(asked, {"listed": found.listed, "leaves": len(found.leaves)})
        return [Share(tuple(one), wanted) for one in dealt] or [Share((), wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        counted = Counted()
        reading = replace(self.asked.reading, wanted=partition.wanted)
        yield from folder_rows.batches(list(partition.leaves), reading, counted)
        _count(self.asked, counted.to_json())
        if counted.malformed or counted.moved:
            words = f"{counted.malformed} malformed, {counted.moved} moved meanwhile"
            print(f"rq: folders without a row: {words}", file=sys.stderr)  # noqa: T201


def _count(asked: Asked, numbers: Mapping[str, int]) -> None:
    """Tell whoever asked for it what was done."""
    if asked.counts:
        with Path(asked.counts).open("ab", buffering=0) as file:
            file.write(orjson.dumps(numbers) + b"\n")


class PushingReader(DataSourceReader):
    """As MessagesReader, and takes filters."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        reading = self._asked.reading
        for one in filters:
            wanted = narrowed(reading.wanted, one)
            if wanted is None:
                yield one
            else:
                reading = replace(reading, wanted=wanted)
        self._asked = replace(self._asked, reading=reading)

    def partitions(self) -> list[InputPartition]:
        return MessagesReader(self._asked).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return MessagesReader(self._asked).read(partition)


def narrowed(wanted: Wanted, one: Filter) -> Wanted | None:
    """Return what is wanted if a filter holds, too; None when Spark has to look."""
    column = getattr(one, "attribute", ("",))[0]
    what = _COLUMN.get(column)
    if what is None:
        return None
    if isinstance(one, EqualTo | EqualNullSafe):
        return None if one.value is None else wanted.only(what, _texts([one.value]))
    if isinstance(one, In):
        return wanted.only(what, _texts(one.value))
    if what == "dates" and isinstance(one, _RANGES):
        return _in_range(wanted, one)
    return None


def _in_range(wanted: Wanted, one: Any) -> Wanted | None:
    """Dates compare as their eight digits do, so the next number is as good as the
    next day."""
    if not isinstance(one.value, date):
        return None
    day = _digits(one.value)
    if isinstance(one, GreaterThan | GreaterThanOrEqual):
        first = f"{day + isinstance(one, GreaterThan):08d}"
        return replace(wanted, first=max(wanted.first, first))
    last = f"{day - isinstance(one, LessThan):08d}"
    return replace(wanted, last=min(wanted.last, last))


def _digits(day: date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


def _texts(values: Iterable[Any]) -> frozenset[str]:
    return frozenset(
        f"{_digits(one):08d}" if isinstance(one, date) else str(one) for one in values
    )


# ---- history


class HistoryReader(DataSourceReader):
    """Reads all events that are sealed now."""

    def __init__(self, asked: Asked) -> None:
        options = {"root": asked.root, "payload": "keep", "skip_gaps": "true"}
        if asked.queue is not None:
            options["queue"] = asked.queue
        self._asked = asked
        self._events = journal_source.JournalReader(options)

    def partitions(self) -> list[InputPartition]:
        root = Root(Path(self._asked.root))
        journals = journal_plan.look(root, self._asked.queue)
        end = journal_plan.latest(journals, {}, skip_gaps=True)
        found = list(self._events.partitions({}, end))
        return found or [journal_source.Share(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._events.read(partition)
