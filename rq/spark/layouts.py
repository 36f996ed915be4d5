"""What is read of files: lines, or rows of CSV, JSON or Parquet; and a file as that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote

from rq.errors import RQError
from rq.spark import attachments, csv_rows, json_rows, parquet_rows, schemas
from rq.spark.attachments import File, Whose
from rq.spark.csv_rows import PLAIN, Dialect
from rq.spark.remote import Allow
from rq.spark.schemas import Column
from rq.spark.texts import Lines

if TYPE_CHECKING:
    import pyarrow as pa

    Rows = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is read of files."""

    kind: str  # of _KINDS
    columns: tuple[Column, ...] = ()  # none: they are to be inferred, or it has lines
    dialect: Dialect = PLAIN
    only: str = "*"  # the names of files that are meant
    kept: str = ""  # where the columns are kept, if they were inferred

    @property
    def schema(self) -> pa.Schema:
        return schemas.arrow(self.columns) if self.columns else attachments.schema()

    @property
    def name(self) -> str:
        """What it is called among those of a queue."""
        return self.kind if self.only == "*" else f"{self.kind}-{quote(self.only, '')}"

    def lines(self) -> Lines | None:
        """Return what tells from which lines on a plain file can be read; None: from its
        beginning alone."""
        return _KINDS[self.kind].lines(self)

    def takes(self, file: File) -> bool:
        return fnmatchcase(file.name.rpartition("/")[2], self.only)

    def batches(self, file: File, may: Allow) -> Rows:
        """Give the rows of a file; BadInput or Unreachable when that cannot be."""
        return _KINDS[self.kind].rows(self, file, may)

    def inferred(self, file: File, may: Allow) -> tuple[Column, ...]:
        """Return the columns of a file by its first rows; none: it has no rows."""
        return _KINDS[self.kind].inferred(self, file, may)

    def checked(self, file: File, may: Allow) -> Rows:
        """Give a row if a file cannot be read to its end."""
        if self.kind == LINES.kind:
            yield from attachments.checked(file, may)
            return
        try:
            for _ in self.batches(file, may):
                pass
        except RQError as error:
            bad = attachments.unreadable(error)
            if bad is None:
                raise
            yield attachments.row_of(bad)

    def text(self) -> str:
        """Return it as `parsed` reads it, for another process."""
        return json.dumps(asdict(self))


LINES = Layout(kind="lines")


def parsed(text: str) -> Layout:
    """Return what `text` gave."""
    layout = Layout(**json.loads(text))
    columns = tuple(Column(**dict(column)) for column in layout.columns)  # type: ignore[call-overload]
    return replace(layout, columns=columns, dialect=Dialect(**dict(layout.dialect)))  # type: ignore[call-overload]


class HowCsv(TypedDict, total=False):
    """What a job may say of CSV."""

    header: bool
    delimiter: str
    quote: str
    encoding: str
    null: str


def csv(schema: str, only: str, how: HowCsv) -> Layout:
    """Return the layout that a job states; BadInput."""
    dialect = Dialect(**how)
    dialect.demand()
    return replace(stated("csv", schema, only), dialect=dialect)


def stated(kind: str, schema: str, only: str) -> Layout:
    """Return the layout that a job states, without a schema one whose columns are to be
    inferred; BadInput."""
    columns = schemas.parsed(schema) if schema else ()
    if kind in _HELD:
        schemas.demand_leaves(columns, _HELD[kind], kind.upper())
    return Layout(kind=kind, columns=columns, only=only)


# ---- the kinds

# What lists and structs may hold, where that is less than any type.
_HELD = {"csv": (), "json": json_rows.HELD}


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the files of a kind are read."""

    rows: Callable[[Layout, File, Allow], Rows]
    inferred: Callable[[Layout, File, Allow], tuple[Column, ...]]
    lines: Callable[[Layout], Lines | None]


class _Any:
    """Lines that are rows, whatever they have."""

    def begin(self, _head: bytes) -> int:
        return 0

    def are_rows(self, _lines: bytes) -> bool:
        return True


def _lines(_layout: Layout, file: File, may: Allow) -> Rows:
    return attachments.batches(file, may)


def _no_columns(_layout: Layout, _file: File, _may: Allow) -> tuple[Column, ...]:
    return ()


def _of_csv(layout: Layout, file: File, may: Allow) -> Rows:
    reader = csv_rows.Reader(layout.columns, layout.dialect, layout.kept)
    whose = Whose(file)
    if file.begin and layout.dialect.header:
        with attachments.whole(replace(file, begin=0, end=0), may, "") as texts:
            reader.take_names(texts)
    with attachments.whole(file, may, layout.dialect.encoding) as texts:
        for rows in reader.rows(texts, file.line):
            yield whose.rows(rows)


def _inferred_of_csv(layout: Layout, file: File, may: Allow) -> tuple[Column, ...]:
    with attachments.whole(file, may, layout.dialect.encoding) as texts:
        return csv_rows.inferred(texts, layout.dialect)


def _of_json(layout: Layout, file: File, may: Allow) -> Rows:
    reader = json_rows.Reader(layout.columns, layout.kept)
    whose = Whose(file)
    with attachments.whole(file, may, "") as texts:
        for rows in reader.rows(texts, file.line, is_start=not file.begin):
            yield whose.rows(rows)


def _inferred_of_json(_layout: Layout, file: File, may: Allow) -> tuple[Column, ...]:
    with attachments.whole(file, may, "") as texts:
        return json_rows.inferred(texts)


def _of_parquet(layout: Layout, file: File, may: Allow) -> Rows:
    reader = parquet_rows.Reader(layout.columns, layout.kept)
    whose = Whose(file)
    with attachments.seekable(file, may) as data:
        for rows in reader.rows(data):
            yield whose.rows(rows)


def _inferred_of_parquet(_layout: Layout, file: File, may: Allow) -> tuple[Column, ...]:
    with attachments.seekable(file, may) as data:
        return parquet_rows.inferred(data)


_KINDS = {
    "lines": _Kind(_lines, _no_columns, lambda _: _Any()),
    "csv": _Kind(_of_csv, _inferred_of_csv, lambda layout: layout.dialect.lines()),
    "json": _Kind(_of_json, _inferred_of_json, lambda _: json_rows.Lines()),
    "parquet": _Kind(_of_parquet, _inferred_of_parquet, lambda _: None),
}
