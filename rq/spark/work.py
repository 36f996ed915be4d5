"""`q`: what a job can ask of its batch and say of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rq import names
from rq.checks import Check, Kind
from rq.errors import BadInput
from rq.scripts.pipe import Verb
from rq.spark import (
    arguments,
    attachments,
    contracts,
    delta,
    delta_goals,
    expectations,
    layouts,
    rejected,
    remote,
    results,
    staging,
    table_rights,
    targets,
)
from rq.spark.attachments import Bad
from rq.spark.contracts import Contract, Stated
from rq.spark.delta_goals import How
from rq.spark.expectations import Counts, Most, Parsed, Read
from rq.spark.figures import Figures
from rq.spark.given import Batch, Given
from rq.spark.kept_schemas import KeptSchemas
from rq.spark.layouts import LINES, HowCsv, Layout
from rq.spark.sending import Letter
from rq.spark.tables import Tables
from rq.spark.writes import Table, Writes
from rq.words.nesting import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Unpack

RESULTS = "results"  # directory of attachments, in the working directory


class Outlet(Protocol):
    """Where a job runs: what it says goes there, and its session comes from there."""

    def say(self, verb: Verb, text: str) -> None:
        """Say something of all messages."""

    def failed(self, q: Work) -> None:
        """Hear that a job's function has failed, and what it has done until then."""

    @property
    def schemas(self) -> Path | None:
        """Where the columns of files are kept that were inferred; None: nowhere."""

    def tables(self) -> Tables:
        """Return Spark, or DuckDB, started now if need be."""

    def place(self, where: str) -> str:
        """Return where a table is written that is meant for a place."""

    def table(self, name: str) -> str:
        """Return where a Delta table is that is written, NAME or QUEUE/NAME: its directory,
        or an address in a store."""

    def table_to_read(self, name: str) -> str:
        """Return that of one that is read."""


@arguments.guarded
class Work:
    """The messages of a batch, and what becomes of them."""

    def __init__(self, batch: Batch, outlet: Outlet, messages: Sequence[Given]) -> None:
        self.batch_id = batch.batch_id
        self.queue = batch.queue
        self.messages = list(messages)
        self.letters: list[Letter] = []
        self._outlet = outlet
        self._files: list[Path] = []
        self._parsed: list[Parsed] = []
        self._read: list[Read] = []
        self._layouts: list[Layout] = []  # what was read of files
        self._figures = Figures()
        self.writes = Writes(batch.queue, batch.batch_id)
        self._schemas: KeptSchemas | None = None
        self.checked: list[str] = []  # what was expected, and holds
        self.checks: list[Check] = []  # that, what does not hold, and contracts
        self._contracts: dict[str, Contract] = {}  # by table
        # Messages that name where a table goes, or bring nothing to be read, if that has
        # ended the job's function.
        self.strays: list[Bad] = []
        # How single messages end: said when the job's own code is through, for then
        # their attachments are read no more.
        self.endings: dict[str, tuple[Verb, str]] = {}

    @property
    def spark(self) -> SparkSession:
        """The SparkSession; on DuckDB, what stands in for it."""
        return self.tables.session

    @property
    def tables(self) -> Tables:
        """What makes the tables: Spark, or DuckDB."""
        tables = self._outlet.tables()
        self._figures.began(tables.engine)
        return tables

    @property
    def ids(self) -> list[str]:
        """The ids of the messages that have not ended."""
        return [message.msg_id for message in self.remaining]

    @property
    def remaining(self) -> list[Given]:
        """The messages of which neither err nor resend was said."""
        return [m for m in self.messages if m.msg_id not in self.endings]

    # ---- reading

    def lines(self, allow_empty: bool = False) -> DataFrame:
        """Return the lines of all attachments, and of what each `param1` leads to, as
        a DataFrame: msg_id, src, file, lineno, line. A message that has neither fails,
        unless `allow_empty`."""
        self._demand_input(allow_empty)
        return self._rows(LINES)[0]

    def csv(
        self,
        schema: str = "",
        only: str = "*",
        most_rescued: float | None = None,
        allow_empty: bool = False,
        **how: Unpack[HowCsv],
    ) -> DataFrame:
        """Return the rows of CSV files, of those whose names are as `only`, as a
        DataFrame: msg_id, src, file, lineno, the columns of `schema`, which are found by
        the first line, and `_rescued`.

        A row that does not fit has its text there, and null for what is no value of its
        column. If none of the rows fits, or more than a share of `most_rescued` does not,
        the job has failed. Without a schema that of the first file is inferred, and kept
        for the queue.
        """
        layout = layouts.csv(schema, only, how)
        return self._structured(layout, most_rescued, allow_empty)

    def json(
        self,
        schema: str = "",
        only: str = "*",
        most_rescued: float | None = None,
        allow_empty: bool = False,
    ) -> DataFrame:
        """Return the rows of JSON files, as `csv` does: an object on each line, or one
        array of objects."""
        layout = layouts.stated("json", schema, only)
        return self._structured(layout, most_rescued, allow_empty)

    def parquet(
        self, schema: str = "", only: str = "*", allow_empty: bool = False
    ) -> DataFrame:
        """Return the rows of Parquet files, as `csv` does; none is rescued: a file that
        has other columns ends its message."""
        layout = layouts.stated("parquet", schema, only)
        return self._structured(layout, None, allow_empty)

    def _structured(
        self, layout: Layout, most_rescued: float | None, allow_empty: bool
    ) -> DataFrame:
        self._demand_input(allow_empty)
        table, counts = self._rows(layout)
        self._read.append(Read(table, counts, most_rescued))
        return table

    def _demand_input(self, allow_empty: bool) -> None:
        self.strays = [] if allow_empty else attachments.empty(self.messages)
        self._raise_first()

    def _rows(self, layout: Layout) -> tuple[DataFrame, Counts]:
        allow = remote.texts(os.environ)
        every = [
            file
            for file in attachments.files(self.messages, allow)
            if layout.takes(file)
        ]
        if layout != LINES and not layout.columns:
            layout = self._kept_schemas().of(layout, every, remote.allow(allow))
        self._layouts.append(layout)
        table, counts = self.tables.rows(every, allow, layout)
        self._figures.read(every, counts)
        return table, counts

    def _kept_schemas(self) -> KeptSchemas:
        if self._schemas is None:
            self._schemas = KeptSchemas(self._outlet.schemas)
        return self._schemas

    def keep_schemas(self) -> None:
        """Keep what was inferred, for the next files of the queue."""
        if self._schemas is not None:
            self._schemas.keep()

    def find_bad(self) -> list[Bad]:
        """Look through all files that were to be read; return which cannot be."""
        allow = remote.texts(os.environ)
        return [
            bad
            for layout in self._layouts or [LINES]
            for bad in self.tables.find_bad(self.messages, allow, layout)
        ]

    def parse(
        self, lines: DataFrame, form: str, most_rejects: float | None = None
    ) -> DataFrame:
        """Return lines as columns; `form` is `combined`, `common`, or a regular
        expression with named groups. Lines that do not fit are in `rejects`.

        If none of the lines that were read fits, the job has failed; it has, too, if
        more than a share of `most_rejects` (0 to 1) does not. 1: all may be so.
        """
        table, parsed = self.tables.split(lines, form, most_rejects)
        self._parsed.append(parsed)
        return table

    @property
    def rejects(self) -> DataFrame:
        """The lines that `parse` could not read."""
        if not self._parsed:
            raise BadInput(
                "q.rejects holds the lines that q.parse could not read: call q.parse first"
            )
        tables = (parsed.rejects for parsed in self._parsed)
        return reduce(lambda rows, more: rows.unionByName(more), tables)

    def since_last(self, name: str = "last") -> tuple[datetime | None, datetime]:
        """Return from when to when an increment goes: from the end of that which the last
        batch that succeeded has taken (None: none has) to now. Of one NAME a batch at a
        time; if this one fails, the next begins where it did."""
        if not names.is_queue_name(name):
            raise BadInput(
                f"q.since_last: {name!r:.60} is no name: letters, digits, - _"
            )
        before, now = self.writes.since(name)
        begin = None if before is None else datetime.fromtimestamp(before, UTC)
        return begin, datetime.fromtimestamp(now, UTC)

    # ---- expecting

    def expect(
        self,
        table: DataFrame,
        rows: int = 1,
        not_null: Sequence[str] = (),
        unique: Sequence[str] = (),
        **most: Unpack[Most],
    ) -> None:
        """Let the job fail unless a table has so many `rows` at least, no nulls in some
        columns, and one row for each value of others (together); and if of the lines that
        were parsed for it more than a share of `most_rejects` does not fit, or of the
        rows of files more than `most_rescued`, or of all that was read more than
        `most_replaced` have bytes that are no text. The message says what holds.
        """
        most_rejects = most.get("most_rejects")
        nulls, keys = _columns(not_null), _columns(unique)
        with self._noting():
            with self._lines_first(most_rejects):
                holds = expectations.check(table, rows, nulls, keys)
            self._check_lines(most_rejects, most.get("most_rescued"))
            if "most_replaced" in most:
                self._figures.check_replaced(most["most_replaced"])
        self.checked.append(holds)
        self.checks.append(Check(kind=Kind.EXPECT, text=holds, holds=True))
        self.run(f"checked: {holds}")

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Check something, and note why if it does not hold."""
        try:
            yield
        except BadInput as error:
            self.checks.append(Check(kind=Kind.EXPECT, text=str(error), holds=False))
            raise

    # ---- saying

    def run(self, text: str) -> None:
        """Say how far it is, as progress of all messages."""
        self._outlet.say(Verb.RUN, text)

    def attach(
        self, result: DataFrame | str | bytes | Path, name: str, at_least: int = 0
    ) -> Path:
        """Attach a DataFrame, text, bytes or a file to the next message that is sent;
        the suffix of `name` says how a DataFrame is written. The job has failed if a
        DataFrame has not `at_least` so many rows."""
        path = self._results() / name
        if path in self._files:
            raise BadInput(f"{name} is attached to the next message already")
        with self._lines_first():
            rows = results.write(result, path, at_least)
        self._figures.output(name, rows)
        self._files.append(path)
        return path

    def write(self, table: DataFrame, where: str, by: Sequence[str] | str = ()) -> None:
        """Write a DataFrame as Parquet files below an absolute path or s3://BUCKET/PREFIX/,
        in a directory for each value of the columns `by`. The files come from the tasks,
        and are to be seen, once, when the job has succeeded."""
        columns = [by] if isinstance(by, str) else list(by)
        staging.check_columns(columns, table.columns)
        self.strays = targets.strays(where, self.messages, remote.texts(os.environ))
        self._raise_first()
        tables, listed = self.tables, self.writes.listed
        with self._lines_first():
            written = self.writes.add(
                self._outlet.place(where),
                columns,
                lambda stage: tables.write(table, stage, listed),
            )
        self._figures.output(where.partition("?")[0], written.rows)

    def table_of(self, name: str) -> DataFrame:
        """Return the rows of a Delta table as it is now: NAME of this queue, or QUEUE/NAME of
        another one whose setting `allow` lets this one read it."""
        name = table_rights.short(self.queue, name, "q.table_of")
        where = self._outlet.table_to_read(name)
        lake = delta.load(where)
        if lake is None:
            raise BadInput(f"q.table_of: there is no table {name}")
        return self.tables.of_lake(where, lake)

    def contract(
        self,
        name: str,
        columns: Mapping[str, str | Stated],
        unique: Sequence[str] | str = (),
        most_rejects: float | None = None,
    ) -> None:
        """State what each row keeps that this batch writes to the Delta table NAME: of each
        column `"TYPE not null"`, or a dict of `type`, `not_null`, `least`, `most` and
        `one_of`; `unique`: the columns of which no two rows have the same values.

        Rows that break it go into the table NAME__rejected. If all of them do, or more than
        a share of `most_rejects` (0: one is enough), the job has failed.
        """
        name = table_rights.short(self.queue, name, "q.contract")
        keys = _columns(unique)
        self._contracts[name] = contracts.stated(name, columns, keys, most_rejects)

    def table(
        self,
        table: DataFrame,
        name: str,
        by: Sequence[str] | str = (),
        **how: Unpack[How],
    ) -> None:
        """Add the rows of a DataFrame to the Delta table NAME of this queue, or
        QUEUE/NAME of another one whose setting `allow` lets this one write it, once, when
        the job has succeeded. `by`: the columns that part it; `mode`: `append`;
        `replace_by`, so that they replace all rows with the same values of `by`; or
        `merge`, so that each changes the row with its `key`, if there is one, and of
        several the last one by the column `order` does;
        `evolve`: whether columns that it does not have are added (`add`) or refused
        (`none`)."""
        columns = tuple(_columns(by))
        name = table_rights.short(self.queue, name)
        place = self._outlet.table(name)
        goal = delta_goals.goal(name, place, columns, how)
        staging.check_columns(columns, table.columns, "q.table")
        tables, listed = self.tables, self.writes.listed
        contract = self._contracts.get(name)
        applied = contracts.apply(contract, goal, table, tables, self.batch_id)
        table, goal = applied.rows, applied.goal
        with self._lines_first():
            written, aside = self.writes.add_to(
                goal, lambda stage: tables.write(table, stage, listed)
            )
        self._figures.output(name, written.rows)
        if contract is not None:
            self._keep(contract, written, aside)

    def _keep(self, contract: Contract, written: Table, aside: Table | None) -> None:
        """Count the rows that break a contract; BadInput if they are too many."""
        rows = 0 if aside is None else aside.rows
        self._figures.rejected(rows)
        self.checks.append(contract.result(written.rows + rows, rows))
        if aside is None:
            return
        self._figures.output(contract.name + rejected.SUFFIX, rows)
        if why := contract.check(written.rows + rows, rows):
            self._check_lines()
            first = staging.samples(aside.stage, aside.files[0])
            raise BadInput(f"q.contract: {why}: {first}")

    def _raise_first(self) -> None:
        for stray in self.strays:
            raise stray.error()

    def _results(self) -> Path:
        """Return the directory of the next message's files: each has its own, for all
        are sent at the end."""
        first = Path.cwd() / RESULTS
        return first / str(len(self.letters) + 1) if self.letters else first

    def send(self, dest: str, **fields: Json) -> None:
        """Send a message, with all that was attached before, once the job has succeeded;
        it is sent once, however often the job must begin again."""
        self.letters.append(Letter(dest, fields, tuple(self._files)))
        self._files = []

    def err(self, ids: Iterable[str] | str, why: str) -> None:
        """End some messages as failed."""
        self._end(ids, Verb.ERR, why)

    def resend(self, ids: Iterable[str] | str, delay: str | float, why: str) -> None:
        """Have some messages run again after a delay: seconds, or `30s`, `5m`, `2h`."""
        self._end(ids, Verb.RESEND, f"{arguments.seconds(delay)}-{why}")

    def _end(self, ids: Iterable[str] | str, verb: Verb, text: str) -> None:
        named = [ids] if isinstance(ids, str) else list(ids)
        strange = set(named) - {message.msg_id for message in self.messages}
        if strange:
            raise BadInput(f"{min(strange)} is not a message of this batch")
        for msg_id in named:
            self.endings.setdefault(msg_id, (verb, text))

    def figures(self, sent: Sequence[str] | None) -> str:
        """Return what was read and made, as JSON; `sent`: the messages that were sent;
        None: the job has failed."""
        if self._read:
            self._figures.rescued = sum(read.rescued() for read in self._read)
        return self._figures.text(len(self.remaining), self._parsed, sent)

    def check(self) -> None:
        """Raise BadInput if too many lines did not fit, or something was attached to
        nothing."""
        self._check_lines()
        written = {t.plan.name for t in self.writes.tables if t.plan is not None}
        for name in self._contracts.keys() - written:
            raise BadInput(f"q.contract: {name}: no q.table of that name follows")
        if self._files:
            names = ", ".join(path.name for path in self._files)
            raise BadInput(f"{names}: attached, but no q.send follows")

    def _check_lines(
        self, most_rejects: float | None = None, most_rescued: float | None = None
    ) -> None:
        for parsed in self._parsed:
            parsed.check(most_rejects)
        for read in self._read:
            read.check(most_rescued)

    @contextlib.contextmanager
    def _lines_first(self, most_rejects: float | None = None) -> Iterator[None]:
        """Do what reads lines, and check these: when they do not fit, that is why the rest
        is not as promised, so it is said first."""
        try:
            yield
        except BadInput:
            self._check_lines(most_rejects)
            raise


def _columns(given: Sequence[str]) -> Sequence[str]:
    """Return the names of columns; a text is the name of one, not one for each letter."""
    return [given] if isinstance(given, str) else given
