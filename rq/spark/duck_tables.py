"""Tables on DuckDB."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import attachments, duck, functions, remote, staging
from rq.spark.attachments import Bad, File
from rq.spark.duck_lines import Batches, Files, Step, Stream
from rq.spark.duck_parsing import Parser
from rq.spark.expectations import LINES, MALFORMED, REJECTED, Counts, Parsed
from rq.spark.given import Given
from rq.spark.staging import Stage, Staged

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROWS = 100_000  # of a batch that comes out of DuckDB to be parsed
Source = Callable[[Step], "Iterator[pa.RecordBatch]"]
Count = Callable[["pa.RecordBatch"], int]


class Tally:
    """Counts the lines that a scan reads, those it rejects, and those that `malformed`
    counts in what it keeps; has the figures of the scan that came farthest."""

    def __init__(self, malformed: Count = lambda _: 0) -> None:
        self._most = {LINES: 0, REJECTED: 0, MALFORMED: 0}
        self._malformed = malformed

    def get(self) -> dict[str, int]:
        return self._most

    def scan(self, step: Step) -> Step:
        """Return a step of a scan that counts what comes in and what does not go out."""
        own = {LINES: 0, REJECTED: 0, MALFORMED: 0}

        def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
            kept = step(batch)
            own[LINES] += batch.num_rows
            own[REJECTED] += batch.num_rows - kept.num_rows
            own[MALFORMED] += self._malformed(kept)
            if own[LINES] >= self._most[LINES]:
                self._most = own
            return kept

        return counting


@dataclass(frozen=True, slots=True)
class _Read:
    """A table of `q.lines()`."""

    table: DataFrame
    files: Files
    tally: Tally

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

    def cancel(self) -> None:
        self.session.conn.interrupt()

    def close(self) -> None:
        duck.close(self.session)

    def write(self, table: DataFrame, stage: Stage, listed: Path) -> list[Staged]:
        relation = table.relation
        if stage.by:
            relation = relation.order(", ".join(f'"{name}"' for name in stage.by))
        return staging.write(relation.to_arrow_reader(_ROWS), stage, "0")

    def cause(self, error: Exception) -> Exception:
        """Return why the rows of a table ended, of which DuckDB knows the text alone."""
        if not duck.is_of_duckdb(error):
            return error
        failed = (stream.failed for stream in self._streams if stream.failed)
        return next(failed, error)

    def find_bad(self, messages: Iterable[Given], allow: Sequence[str]) -> list[Bad]:
        every, bad = attachments.listed(messages, allow)
        files = Files(every, remote.allow(allow), self._threads, attachments.checked)
        for batch in files.batches(_same):
            bad += [Bad(*row.values()) for row in batch.to_pylist()]
        return bad

    def lines(
        self, every: Sequence[File], allow: Sequence[str]
    ) -> tuple[DataFrame, Counts]:
        files, tally = Files(every, remote.allow(allow), self._threads), Tally()
        table = self._table(
            attachments.schema(), lambda: files.batches(tally.scan(_same))
        )
        self._read.append(_Read(table, files, tally))
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
                return attachments.schema(), read.scan
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


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
