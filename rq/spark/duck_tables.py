"""Tables on DuckDB: lines and rows of files, and columns by a regular expression.

Some threads read the files, and each scan of the table reads them again; Arrow takes the
lines apart while they are read.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import (
    attachments,
    delta_store,
    duck,
    file_parts,
    functions,
    remote,
    schemas,
    staging,
)
from rq.spark.attachments import Bad, File
from rq.spark.duck_parser import Parser
from rq.spark.expectations import (
    LINES,
    MALFORMED,
    REJECTED,
    REPLACED,
    RESCUED,
    Counts,
    Parsed,
)
from rq.spark.given import Given
from rq.spark.layouts import Layout
from rq.spark.remote import Allow
from rq.spark.rules import PLACE
from rq.spark.staging import Stage, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from duckdb import DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 100_000  # of a batch that comes out of DuckDB to be parsed
Count = Callable[["pa.RecordBatch"], int]
Batches = Callable[[], "Iterator[pa.RecordBatch]"]
Way = Callable[[File, Allow], "Iterator[pa.RecordBatch]"]
_Way = Callable[[File], "Iterator[pa.RecordBatch]"]
Step = Callable[["pa.RecordBatch"], "pa.RecordBatch"]
Source = Callable[[Step], "Iterator[pa.RecordBatch]"]
_AHEAD = 2  # batches of each thread that wait to be taken
_LOOK = 0.2  # seconds between looks whether anybody still takes them


class Tally:
    """Counts the lines that a scan reads, those of them that `replaced` and `rescued`
    count, those it rejects, and those that `malformed` counts in what it keeps; has the
    figures of the scan that came farthest."""

    def __init__(
        self,
        malformed: Count = lambda _: 0,
        replaced: Count = lambda _: 0,
        rescued: Count = lambda _: 0,
    ) -> None:
        self._most = dict.fromkeys((LINES, REJECTED, MALFORMED, REPLACED, RESCUED), 0)
        self._malformed, self._replaced = malformed, replaced
        self._rescued = rescued

    def get(self) -> dict[str, int]:
        return self._most

    def scan(self, step: Step) -> Step:
        """Return a step of a scan that counts what comes in and what does not go out."""
        own = dict.fromkeys(self._most, 0)

        def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
            kept = step(batch)
            own[LINES] += batch.num_rows
            own[REPLACED] += self._replaced(batch)
            own[RESCUED] += self._rescued(batch)
            own[REJECTED] += batch.num_rows - kept.num_rows
            own[MALFORMED] += self._malformed(kept)
            if own[LINES] >= self._most[LINES]:
                self._most = own
            return kept

        return counting


@dataclass(frozen=True, slots=True)
class _Read:
    """A table of what files have."""

    table: DataFrame
    files: Files
    tally: Tally
    schema: pa.Schema

    def scan(self, step: Step) -> Iterator[pa.RecordBatch]:
        """Read all lines; give what a step makes of them."""
        count = self.tally.scan(_same)

        def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
            return step(count(batch))

        yield from self.files.batches(counted)


class DuckTables:
    """The tables of a database in memory."""

    engine = functions.DUCKDB

    def __init__(self, session: SparkSession, threads: int) -> None:
        self.session = session
        self._threads = threads
        self._streams: list[Stream] = []
        self._read: list[_Read] = []
        self._numbers = itertools.count(1)

    @property
    def watched(self) -> DuckTables:
        return self

    def far(self) -> str:
        """Return `3/12 files, 4,200,000 lines`; nothing before the first line."""
        lines = sum(read.files.lines for read in self._read)
        if not lines:
            return ""
        ended = sum(read.files.ended for read in self._read)
        total = sum(len(read.files) for read in self._read)
        return f"{ended}/{total} files, {lines:,} lines"

    def over(self) -> str:
        """Return nothing: it waits for no other process."""
        return ""

    def cancel(self) -> None:
        self.session.conn.interrupt()

    def close(self) -> None:
        duck.close(self.session)

    def schema(self, table: DataFrame) -> pa.Schema:
        return table.relation.limit(0).to_arrow_table().schema

    def counted(self, table: DataFrame, key: Sequence[str], name: str) -> DataFrame:
        keys = ", ".join(_keys(table.relation, key))
        of_key = f"count(*) OVER (PARTITION BY {keys})"
        return self._frame(table.relation.project(f"*, {of_key} AS {_quoted(name)}"))

    def of_lake(self, _where: str, lake: DeltaTable) -> DataFrame:
        name = self._name()
        self.session.conn.register(name, delta_store.dataset(lake))
        return self._frame(self.session.conn.table(name))

    def last(self, table: DataFrame, key: Sequence[str], order: str) -> DataFrame:
        keys = _keys(table.relation, key)
        place = (
            f"rank() OVER (PARTITION BY {', '.join(keys)} "
            f"ORDER BY {_quoted(order)} DESC NULLS LAST)"
        )
        is_last = " OR ".join([f"{PLACE} = 1", *(f"{name} IS NULL" for name in keys)])
        placed = table.relation.project(f"*, {place} AS {PLACE}").filter(is_last)
        return self._frame(placed.project(f"* EXCLUDE ({PLACE})"))

    def write(self, table: DataFrame, stage: Stage, listed: Path) -> list[Staged]:
        relation = table.relation
        if stage.by:
            relation = relation.order(", ".join(map(_quoted, stage.by)))
        return staging.write(relation.to_arrow_reader(_ROWS), stage, "0")

    def cause(self, error: Exception) -> Exception:
        """Return why the rows of a table ended, of which DuckDB knows the text alone."""
        if not duck.is_of_duckdb(error):
            return error
        failed = (stream.failed for stream in self._streams if stream.failed)
        return next(failed, error)

    def find_bad(
        self, messages: Iterable[Given], allow: Sequence[str], layout: Layout
    ) -> list[Bad]:
        every, bad = attachments.listed(messages, allow)
        every = [file for file in every if layout.takes(file)]
        files = Files(every, remote.allow(allow), self._threads, layout.checked)
        for batch in files.batches(_same):
            bad += [Bad(*row.values()) for row in batch.to_pylist()]
        return bad

    def rows(
        self, every: Sequence[File], allow: Sequence[str], layout: Layout
    ) -> tuple[DataFrame, Counts]:
        parts = file_parts.parted(every, layout)
        files = Files(parts, remote.allow(allow), self._threads, layout.batches)
        tally = Tally(replaced=attachments.replaced, rescued=schemas.rescued)
        table = self._table(layout.schema, lambda: files.batches(tally.scan(_same)))
        self._read.append(_Read(table, files, tally, layout.schema))
        return table, tally

    def split(
        self, lines: DataFrame, form: str, most_rejects: float | None
    ) -> tuple[DataFrame, Parsed]:
        if "line" not in lines.columns:
            raise BadInput("q.parse reads the column `line`, which is not there")
        parser = Parser(form, lines.columns)
        tally = Tally(parser.malformed)
        schema, source = self._source(lines)
        table = self._table(
            parser.schema(schema),
            lambda: source(tally.scan(parser.fitting)),
        )
        rejects = self._table(schema, lambda: source(parser.rejects))
        typed = self._frame(table.relation.project(parser.typed()))
        return typed, Parsed(form, rejects, tally, most_rejects, parser.is_usual)

    def _source(self, lines: DataFrame) -> tuple[pa.Schema, Source]:
        """Return what reads a table of lines again and again: from the files, if it is
        what `lines` gave; else it is kept first."""
        for read in self._read:
            if read.table is lines:
                return read.schema, read.scan
        name, conn = self._name(), self.session.conn
        lines.relation.create(name)

        def kept(step: Step) -> Iterator[pa.RecordBatch]:
            yield from map(step, conn.cursor().table(name).to_arrow_reader(_ROWS))

        return lines.relation.limit(0).to_arrow_table().schema, kept

    def _table(self, schema: pa.Schema, batches: Batches) -> DataFrame:
        stream, name = Stream(schema, batches), self._name()
        self._streams.append(stream)
        # By its name, so that it can be part of a view.
        self.session.conn.register(name, stream)
        return self._frame(self.session.conn.table(name))

    def _frame(self, relation: object) -> DataFrame:
        from duckdb.experimental.spark.sql.dataframe import DataFrame

        return DataFrame(relation, self.session)

    def _name(self) -> str:
        return f"_rq_{next(self._numbers)}"


def _keys(relation: DuckDBPyRelation, names: Sequence[str]) -> list[str]:
    """Return what rows of a table have the same of if they have the same key: a table has no
    nanoseconds."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    return [
        f"epoch_ns({_quoted(name)}) // 1000"
        if kinds.get(name) == "TIMESTAMP_NS"
        else _quoted(name)
        for name in names
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


# ---- lines of files


class Stream:
    """A table for DuckDB whose rows are made when it asks for them."""

    def __init__(self, schema: pa.Schema, batches: Batches) -> None:
        self._schema = schema
        self._batches = batches
        self.failed: Exception | None = None  # why the last scan has ended

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self._schema, self._watched())
        return reader.__arrow_c_stream__(requested_schema)

    def _watched(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except Exception as error:
            self.failed = error  # DuckDB keeps no more than its text
            raise


class Files:
    """Some files, read by some threads."""

    def __init__(
        self,
        every: Sequence[File],
        may: Allow,
        threads: int,
        way: Way = attachments.batches,
    ) -> None:
        self._every = sorted(every, key=lambda file: -file.size)
        self._parts = Counter(file.whole for file in every)
        self._way: _Way = lambda file: way(file, may)
        self._threads = threads
        self.ended = 0  # files that the last scan has read to their ends
        self.lines = 0  # that it has read

    def batches(self, step: Step) -> Iterator[pa.RecordBatch]:
        """Read all files; give what `step` makes of each piece, in any order."""
        self.ended = self.lines = 0
        count = min(self._threads, len(self._every))

        def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
            self.lines += batch.num_rows
            return step(batch)

        reading = _Reading(self._every, self._way, counted, _AHEAD * count)
        threads = [
            threading.Thread(target=reading.run, daemon=True) for _ in range(count)
        ]
        remain = self._parts.copy()  # of this scan: there may be others at once
        for thread in threads:
            thread.start()
        try:
            while remain.total():
                piece = reading.pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, File):
                    remain[piece.whole] -= 1
                    self.ended += not remain[piece.whole]
                else:
                    yield piece
        finally:
            reading.is_over.set()

    def __len__(self) -> int:
        return len(self._parts)


class _Reading:
    """What the threads of one scan share."""

    def __init__(
        self, every: Sequence[File], way: _Way, step: Step, ahead: int
    ) -> None:
        self._todo: queue.SimpleQueue[File] = queue.SimpleQueue()
        for file in every:
            self._todo.put(file)
        self._way, self._step = way, step
        # A batch; a file, or a part, that has ended; what it failed with.
        self.pieces: queue.Queue[pa.RecordBatch | Exception | File] = queue.Queue(
            maxsize=ahead
        )
        self.is_over = threading.Event()

    def run(self) -> None:
        """Read file after file until there is none, or the scan has ended."""
        try:
            while not self.is_over.is_set():
                self._read(self._todo.get_nowait())
        except queue.Empty:
            return
        except Exception as error:  # noqa: BLE001 - raised again in the thread that takes it
            self._put(error)

    def _read(self, file: File) -> None:
        for batch in self._way(file):
            if not self._put(self._step(batch)):
                return
        self._put(file)

    def _put(self, piece: pa.RecordBatch | Exception | File) -> bool:
        while not self.is_over.is_set():
            try:
                self.pieces.put(piece, timeout=_LOOK)
            except queue.Full:
                continue
            return True
        return False
