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
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from rq import config
from rq.errors import BadInput
from rq.layout import Root
from rq.spark import (
    folder_rows,
    folders_plan,
    history_reader,
    lease_options,
    sink,
)
from rq.spark.folder_rows import Counted, Reading
from rq.spark.folders_plan import Leaf, Wanted
from rq.spark.history_reader import HistoryReader, PushingHistoryReader
from rq.spark.lease_stream import LeaseReader
from rq.spark.narrowing import OF_MESSAGES, narrowed
from rq.words.states import COUNTED

NAME = "rq"
_HISTORY, _MESSAGES = "history", "messages"
_PUSHING_WORKER = "data_source_pushdown_filters"


class RqSource(DataSource):
    """The source; Spark makes it from its options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        history = self.options.get("of") == _HISTORY
        return history_reader.SCHEMA if history else folder_rows.SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        pushes = options.pushdown and may_push(sys.argv)
        if options.history:
            wanted = (options.root, options.queue, options.counts)
            return (PushingHistoryReader if pushes else HistoryReader)(*wanted)
        return (PushingReader if pushes else MessagesReader)(options)

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
    if not (text.isascii() and text.isdigit()):
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
        folder_rows.note(
            options.counts, {"listed": planned.listed, "leaves": len(planned.leaves)}
        )
        return [Share(tuple(leaves), wanted) for leaves in dealt] or [Share((), wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        counted = Counted()
        reading = replace(self.options.reading, wanted=partition.wanted)
        yield from folder_rows.batches(list(partition.leaves), reading, counted)
        folder_rows.note(self.options.counts, counted.to_json())
        if counted.malformed or counted.moved:
            words = f"{counted.malformed} malformed, {counted.moved} moved meanwhile"
            print(f"rq: folders without a row: {words}", file=sys.stderr)  # noqa: T201


class PushingReader(DataSourceReader):
    """As MessagesReader, and takes filters."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        reading = self._options.reading
        for condition in filters:
            wanted = narrowed(reading.wanted, condition, OF_MESSAGES)
            if wanted is None:
                yield condition
            else:
                reading = replace(reading, wanted=wanted)
        self._options = replace(self._options, reading=reading)

    def partitions(self) -> list[InputPartition]:
        return MessagesReader(self._options).partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return MessagesReader(self._options).read(partition)
