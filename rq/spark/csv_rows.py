"""Rows of CSV, as both engines get them.

A record is what the grammar below takes, and nothing is guessed: a value is without quotes
or in quotes from its beginning to its end, in which a quote is written twice and lines may
end. What is no record is rescued line by line, and the next line may begin one again, so a
quote that is never closed costs a line and not a file. Arrow takes records apart, many at
once; that it finds the same records, the grammar makes sure before. Whether a line is a
record does not depend on where the blocks of a file end.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import schemas
from rq.spark.schemas import STRING, Column
from rq.spark.texts import behind_first, is_unix, unix, utf8

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    Misfit = Callable[[arrow_csv.InvalidRow], str]

_LONGEST = 16 * 1024 * 1024  # bytes of a record


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How CSV is written."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'  # nothing: a quote is a character as any other
    encoding: str = ""  # nothing: UTF-8, or what the first bytes say
    null: str = ""  # what stands for no value, without quotes

    def demand(self) -> None:
        """Raise BadInput unless it can be read."""
        for name, text in (("delimiter", self.delimiter), ("quote", self.quote or "x")):
            if len(text) != 1 or not text.isascii() or text in "\r\n\0":
                raise BadInput(f"q.csv: {name}={text!r:.20} is not one sign of ASCII")
        if self.delimiter == self.quote:
            raise BadInput(f"q.csv: delimiter and quote are both {self.quote!r}")
        if self.encoding:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise BadInput(
                    f"q.csv: encoding={self.encoding!r:.40} is not known"
                ) from None

    def lines(self) -> Lines | None:
        """Return what tells whether a file can be read from any line on; None: by what
        its bytes are, which is not looked into."""
        return None if self.encoding else Lines(self)


PLAIN = Dialect()


class Grammar:
    """What is a record of a dialect, in bytes whose lines end with \\n."""

    def __init__(self, dialect: Dialect) -> None:
        mark, quote = (
            re.escape(text.encode()) for text in (dialect.delimiter, dialect.quote)
        )
        plain = rb"(?:[^%s%s\n][^%s\n]*+)?+" % (mark, quote, mark)
        closed = rb"%s[^%s]*+(?:%s%s[^%s]*+)*+%s" % ((quote,) * 6)
        value = rb"(?:%s|%s)" % (closed, plain) if quote else plain
        record = rb"%s(?:%s%s)*+\n" % (value, mark, value)
        # The same of records that end in their line.
        in_line = value.replace(rb"[^%s]" % quote, rb"[^%s\n]" % quote)
        self.lines = re.compile(rb"(?:%s(?:%s%s)*+\n)*+" % (in_line, mark, in_line))
        self.quote = dialect.quote.encode()
        self.record = re.compile(record)
        self._records = re.compile(rb"(?:%s)*+" % record)
        # What more bytes may make a record.
        begun = rb"%s[^%s]*+(?:%s%s[^%s]*+)*+%s?" % ((quote,) * 6) if quote else b""
        rest = rb"(?:%s|%s)" % (begun, plain) if quote else plain
        self._begun = re.compile(rb"(?:%s%s)*+%s\Z" % (value, mark, rest))

    def end(self, data: bytes, at: int) -> int:
        """Return where records end that begin at a place."""
        if not self.quote or self.quote not in data:
            return data.rfind(b"\n") + 1 or at
        parts = self._records.match(data, at)
        return parts.end() if parts else at

    def is_begun(self, data: bytes, at: int) -> bool:
        """Whether what stands there may become a record by what follows."""
        return self._begun.match(data, at) is not None


class Lines:
    """Lines of CSV. One that is a record by itself is one also to whom reads from the
    beginning, so where all of them are, a part may begin at any."""

    def __init__(self, dialect: Dialect) -> None:
        self._grammar = Grammar(dialect)
        self._has_header = dialect.header

    def begin(self, head: bytes) -> int:
        return behind_first(head) if self._has_header else 0

    def are_rows(self, lines: bytes) -> bool:
        if not is_unix(lines):
            return False
        if not self._grammar.quote or self._grammar.quote not in lines:
            return True
        text = lines.replace(b"\r\n", b"\n")
        text = text if text.endswith(b"\n") else text + b"\n"
        parts = self._grammar.lines.match(text)
        return parts is not None and parts.end() == len(text)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some records, or a line that is none."""

    data: bytes
    line: int  # the number of its first line
    lines: int
    is_whole: bool


def pieces(texts: Iterator[bytes], grammar: Grammar, line: int = 1) -> Iterator[Piece]:
    """Cut a text into records and lines that are none."""
    rest = b""
    for block in unix(texts):
        data, at = rest + block if block else rest, 0
        if not block and data and not data.endswith(b"\n"):
            data += b"\n"
        while at < len(data):
            end = grammar.end(data, at)
            is_whole = end > at
            if not is_whole:
                may_go_on = block and len(data) - at <= _LONGEST
                end = 0 if may_go_on and grammar.is_begun(data, at) else _end(data, at)
            if not end:
                break
            count = data.count(b"\n", at, end)
            yield Piece(data[at:end], line, count, is_whole)
            line += count
            at = end
        rest = data[at:]


def _end(data: bytes, at: int) -> int:
    """Return where a line ends, 0 if that is still to come."""
    end = data.find(b"\n", at) + 1
    if not end and len(data) - at > _LONGEST:
        raise ValueError(f"it has a line of more than {_LONGEST:,} bytes")
    return end


# ---- records as columns


class Reader:
    """Makes columns of the records of one file."""

    def __init__(
        self, columns: Sequence[Column], dialect: Dialect, kept: str = ""
    ) -> None:
        self._columns, self._dialect = columns, dialect
        self._kept = kept  # what holds the columns, if no others may be there
        self._grammar = Grammar(dialect)
        self._names: list[str] = []

    def take_names(self, texts: Iterator[bytes]) -> None:
        """Take the names of columns from a text, of which a later part is read. BadInput."""
        for piece in pieces(texts, self._grammar):
            self._behind_header(piece)
            if self._names:
                return

    def rows(self, texts: Iterator[bytes], line: int = 1) -> Iterator[pa.RecordBatch]:
        """Give the rows of a text: lineno, its columns, `_rescued`; `line`: the number of
        its first. BadInput."""
        cut = pieces(texts, self._grammar, line)
        if not self._dialect.header:
            self._names = [column.name for column in self._columns]
        for piece in cut:
            data = piece if self._names else self._behind_header(piece)
            if data.data:
                yield self._batch(data)

    def sample(self, texts: Iterator[bytes]) -> Iterator[tuple[list[str], pa.Table]]:
        """Give names of all columns, and cells of some rows, as texts."""
        for piece in pieces(texts, self._grammar):
            data = piece.data if self._names else self._begun(piece)
            if piece.is_whole and data.strip(b"\n"):
                self._columns = [Column(name=n, kind=STRING) for n in self._names]
                yield self._names, self._taken_apart(utf8(data))[0]

    def _begun(self, piece: Piece) -> bytes:
        """Name the columns; return what is left of a piece."""
        if self._dialect.header:
            return self._behind_header(piece).data
        if record := self._grammar.record.match(piece.data.lstrip(b"\n")):
            count = len(_header(utf8(record[0]), self._dialect))
            self._names = [f"c{number}" for number in range(1, count + 1)]
        return piece.data

    def _behind_header(self, piece: Piece) -> Piece:
        """Take the names of columns from the first record; return what follows it."""
        data, at = piece.data, 0
        while data.startswith(b"\n", at):
            at += 1
        record = self._grammar.record.match(data, at)
        if record is None:
            if at < len(data):
                raise BadInput("its first line is no CSV: a quote is not closed there")
            return Piece(b"", piece.line, 0, is_whole=True)
        self._names = _header(utf8(record[0]), self._dialect)
        schemas.demand_names(self._names, self._columns, self._kept)
        end = record.end()
        lines = data.count(b"\n", 0, end)
        return Piece(data[end:], piece.line + lines, piece.lines - lines, is_whole=True)

    def _batch(self, piece: Piece) -> pa.RecordBatch:
        text = utf8(piece.data)
        if not piece.is_whole:
            return self._without_cells([piece.line], [text])
        table, misfits = self._taken_apart(text)
        records = Records(text, piece, len(table) + len(misfits), self._grammar)
        fits = sorted({*range(records.count)} - {*misfits}) if misfits else None
        rows = self._typed(table, records, fits)
        if not misfits:
            return rows
        lines = [records.line(number) for number in misfits]
        rescued = self._without_cells(lines, [records.text(n) for n in misfits])
        return _joined([rows, rescued])

    def _taken_apart(self, text: bytes) -> tuple[pa.Table, list[int]]:
        """Return the cells of records, as texts, and which of the records have another
        number of columns."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        misfits = list[int]()

        def misfit(row: arrow_csv.InvalidRow) -> str:
            misfits.append(row.number - 1)
            return "skip"

        if text.startswith(codecs.BOM_UTF8):  # no mark here, and Arrow takes it off
            text = codecs.BOM_UTF8 + text
        numbers = [str(number) for number in range(len(self._names))]
        wanted = [str(self._names.index(column.name)) for column in self._columns]
        table = arrow_csv.read_csv(
            pa.BufferReader(text),
            arrow_csv.ReadOptions(
                column_names=numbers, use_threads=False, block_size=len(text) + 1
            ),
            self._parsing(text, misfit),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                null_values=[self._dialect.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return table, misfits

    def _parsing(self, text: bytes, misfit: Misfit) -> arrow_csv.ParseOptions:
        from pyarrow import csv as arrow_csv

        quote = self._dialect.quote
        has_quotes = bool(quote) and quote.encode() in text
        return arrow_csv.ParseOptions(
            delimiter=self._dialect.delimiter,
            quote_char=quote if has_quotes else False,
            newlines_in_values=has_quotes,
            invalid_row_handler=misfit,
        )

    def _typed(
        self, table: pa.Table, records: Records, fits: list[int] | None
    ) -> pa.RecordBatch:
        """Return the cells of records as values; `fits`: which records they are of, None:
        all."""
        import pyarrow as pa

        cells, spoiled = list[pa.Array](), set[int]()
        for column, texts in zip(self._columns, table.columns, strict=True):
            text = schemas.whole(texts)
            cells.append(schemas.values(text, column))
            spoiled.update(schemas.spoiled(text, cells[-1]))
        numbers = fits or range(records.count)
        rescued = (
            [
                records.text(number) if index in spoiled else None
                for index, number in enumerate(numbers)
            ]
            if spoiled
            else None
        )
        return schemas.batch(self._columns, records.lines(fits), cells, rescued)

    def _without_cells(
        self, lines: Sequence[int], texts: Sequence[bytes]
    ) -> pa.RecordBatch:
        import pyarrow as pa

        cells = [pa.nulls(len(lines), column.types[0]) for column in self._columns]
        return schemas.batch(self._columns, pa.array(lines, pa.int64()), cells, texts)


class Records:
    """The records of a piece: on which lines they begin, and their texts."""

    def __init__(self, text: bytes, piece: Piece, count: int, grammar: Grammar) -> None:
        self._text, self._line, self._grammar = text, piece.line, grammar
        self.count = count
        self._is_even = piece.lines == count  # each is a line, as most are

    @cached_property
    def _all(self) -> list[tuple[int, bytes]]:
        if self._is_even:
            lines = self._text.split(b"\n")[:-1]
            return list(enumerate(lines, self._line))
        every, line = list[tuple[int, bytes]](), self._line
        for record in self._grammar.record.finditer(self._text):
            if record[0] != b"\n":
                every.append((line, record[0].removesuffix(b"\n")))
            line += record[0].count(b"\n")
        return every

    def text(self, number: int) -> bytes:
        return self._all[number][1]

    def line(self, number: int) -> int:
        return self._line + number if self._is_even else self._all[number][0]

    def lines(self, numbers: list[int] | None) -> pa.Array:
        """Return on which lines some records begin; None: all of them."""
        import pyarrow as pa

        if self._is_even and numbers is None:
            return schemas.numbers(self._line, self.count)
        wanted = range(self.count) if numbers is None else numbers
        return pa.array([self.line(number) for number in wanted], pa.int64())


def _header(text: bytes, dialect: Dialect) -> list[str]:
    lines = io.StringIO(text.decode("utf-8"), newline="")
    mark = dialect.delimiter
    reader = (
        csv.reader(lines, delimiter=mark, quotechar=dialect.quote, strict=True)
        if dialect.quote
        else csv.reader(lines, delimiter=mark, quoting=csv.QUOTE_NONE, strict=True)
    )
    return [name.strip() for name in next(reader)]


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.concat_batches(batches)


# ---- inferred


def inferred(texts: Iterator[bytes], dialect: Dialect) -> tuple[Column, ...]:
    """Return the columns of a text by its first rows; none: it has no rows. BadInput."""
    reader = Reader((), dialect)
    for names, cells in reader.sample(texts):
        kinds = [schemas.kind_of(schemas.whole(texts)) for texts in cells.columns]
        return schemas.stated(
            [
                Column(name=name, kind=kind)
                for name, kind in zip(names, kinds, strict=True)
            ]
        )
    return ()
