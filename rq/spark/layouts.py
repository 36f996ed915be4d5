"""What is read of files: lines, or rows of columns; and a file as the batches of that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict

from rq.errors import BadInput, RQError
from rq.spark import attachments, csv_rows, schemas
from rq.spark.attachments import File
from rq.spark.csv_rows import PLAIN, Dialect
from rq.spark.remote import Allow
from rq.spark.schemas import Column

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is read of files."""

    columns: tuple[Column, ...] = ()  # none: their lines
    dialect: Dialect = PLAIN
    only: str = "*"  # the names of files that are meant

    @property
    def schema(self) -> pa.Schema:
        return schemas.arrow(self.columns) if self.columns else attachments.schema()

    @property
    def can_be_parted(self) -> bool:
        """Whether a plain file can be read from any line on."""
        return not self.columns

    def takes(self, file: File) -> bool:
        return fnmatchcase(file.name.rpartition("/")[2], self.only)

    def batches(self, file: File, may: Allow) -> Iterator[pa.RecordBatch]:
        """Give the rows of a file; BadInput or Unreachable when that cannot be."""
        if not self.columns:
            yield from attachments.batches(file, may)
            return
        with attachments.whole(file, may, self.dialect.encoding) as texts:
            reader = csv_rows.Reader(self.columns, self.dialect)
            for rows in reader.rows(texts):
                yield attachments.attributed(file, rows)

    def checked(self, file: File, may: Allow) -> Iterator[pa.RecordBatch]:
        """Give a row if a file cannot be read to its end."""
        if not self.columns:
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


LINES = Layout()


class HowCsv(TypedDict, total=False):
    """What a job may say of CSV."""

    header: bool
    delimiter: str
    quote: str
    encoding: str
    null: str


def csv(schema: str, only: str, how: HowCsv) -> Layout:
    """Return the layout that a job states; BadInput."""
    words = HowCsv.__annotations__
    if strange := how.keys() - words.keys():
        these = ", ".join(words)
        raise BadInput(f"q.csv: {min(strange)!r:.40} is not known; these are: {these}")
    dialect = Dialect(**how)
    dialect.demand()
    return Layout(columns=schemas.parsed(schema), dialect=dialect, only=only)


def parsed(text: str) -> Layout:
    """Return what `text` gave."""
    fields = json.loads(text)
    return Layout(
        columns=tuple(Column(**column) for column in fields["columns"]),
        dialect=Dialect(**fields["dialect"]),
        only=fields["only"],
    )
