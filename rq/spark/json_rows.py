"""Rows of JSON, as both engines get them: an object on each line, or one array of objects.

Arrow reads a block of lines if all of them fit; else each line is read alone, by rules that
take what Arrow takes: so whether a row fits does not depend on its neighbours.
"""

from __future__ import annotations

import codecs
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import orjson

from rq.errors import BadInput
from rq.spark import nested, schemas
from rq.spark.nested import Held
from rq.spark.schemas import Column
from rq.spark.texts import NOWHERE, is_unix, unix, utf8

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST = 64 * 1024 * 1024  # bytes of a line, or of an array
_SAMPLE = 10_000  # rows by which types are inferred
_AS_TEXT = ("date", "timestamp", "decimal")  # types whose values JSON has as texts
HELD = ("string", "int", "bigint", "double", "boolean")  # in lists and structs
# What Arrow takes, and JSON does not.
_NO_JSON = (b"NaN", b"Inf")
# What a figure has that is too large for a double, or needs more digits than one keeps.
_LARGE = re.compile(rb"[0-9]{200}|[eE]\+?[0-9]{3}")
_DIGITS = 20  # of a number of 64 bits, at most, with its sign
_LONG = re.compile(rb"[0-9.]{16}")
_ENDS = {"int": 2**31, "bigint": 2**63}


class Lines:
    """Lines of JSON: each is an object, but of an array."""

    def begin(self, head: bytes) -> int:
        text = head.removeprefix(codecs.BOM_UTF8).lstrip()
        return 0 if text and not text.startswith(b"[") else NOWHERE

    def are_rows(self, lines: bytes) -> bool:
        return is_unix(lines)


class Reader:
    """Makes columns of the objects of one file."""

    def __init__(self, columns: Sequence[Column], kept: str = "") -> None:
        self._columns = columns
        self._kept = kept  # what holds the columns, if no others may be there
        self._names = {column.name for column in columns}
        self._has_decimals = any(c.kind.startswith("decimal") for c in columns)

    def rows(
        self, texts: Iterator[bytes], line: int = 1, is_start: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Give the rows of a text: lineno, its columns, `_rescued`; `line`: the number of
        its first, `is_start`: it may be an array. BadInput."""
        for data, is_array in _blocks(texts, is_start):
            lines = _lines(_array(data)) if is_array else None
            yield self._batch(data, line, lines)
            line += data.count(b"\n")

    def _batch(
        self, data: bytes, line: int, lines: list[bytes] | None
    ) -> pa.RecordBatch:
        text = utf8(data)
        table = self._all_that_fit(text) if lines is None else None
        if table is None:
            return self._one_by_one(lines or text.split(b"\n"), line)
        cells: list[pa.Array] = []
        for column in self._columns:
            values = schemas.whole(table[column.name])
            cells.append(schemas.values(values, column) if _is_text(column) else values)
            if schemas.spoiled(values, cells[-1]) or _is_infinite(values):
                return self._one_by_one(text.split(b"\n"), line)
        return schemas.batch(self._columns, range(line, line + len(table)), cells, None)

    def _all_that_fit(self, text: bytes) -> pa.Table | None:
        """Return the cells of lines that all fit; None: one does not."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        count = text.count(b"\n")
        is_plain = text.startswith(b"{") and text.endswith(b"}\n")
        if not is_plain or text.count(b"}\n{") != count - 1:
            return None
        if any(word in text for word in _NO_JSON):
            return None
        fields = [
            (column.name, pa.string() if _is_text(column) else column.types[0])
            for column in self._columns
        ]
        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                arrow_json.ParseOptions(
                    explicit_schema=pa.schema(fields),
                    unexpected_field_behavior="error" if self._kept else "ignore",
                ),
            )
        except pa.ArrowInvalid:
            return None
        return table if len(table) == count else None

    def _one_by_one(self, lines: Sequence[bytes], first: int) -> pa.RecordBatch:
        import pyarrow as pa

        numbers = [n for n, line in enumerate(lines) if line.strip()]
        rows = [_row(lines[number], self._has_decimals) for number in numbers]
        rescued = {
            index
            for index, row in enumerate(rows)
            if row is None or (self._kept and row.keys() - self._names)
        }
        cells = list[pa.Array]()
        for column in self._columns:
            kind = column.kind
            read = [_cell((row or {}).get(column.name), kind) for row in rows]
            rescued.update(index for index, cell in enumerate(read) if cell is _SPOILED)
            values = [None if cell is _SPOILED else cell for cell in read]
            if _is_text(column):
                texts = pa.array(values, pa.string())
                cells.append(schemas.values(texts, column))
                rescued.update(schemas.spoiled(texts, cells[-1]))
            else:
                cells.append(pa.array(values, column.types[0]))
        texts = [
            lines[number] if index in rescued else None
            for index, number in enumerate(numbers)
        ]
        return schemas.batch(
            self._columns, [first + number for number in numbers], cells, texts
        )


def _is_text(column: Column) -> bool:
    return column.kind.startswith(_AS_TEXT)


_SPOILED: Any = object()  # a value that is none of its column's type


def _cell(value: object, kind: str) -> Any:
    """Return a value as Arrow takes it for a type; of some types its text."""
    if value is None:
        return None
    if inner := nested.held(kind):
        return _list(value, inner) if inner.is_list else _struct(value, inner)
    return _CELLS[kind.partition("(")[0]](value, kind)


def _list(value: object, inner: Held) -> Any:
    if not isinstance(value, list):
        return _SPOILED
    [(_, kind)] = inner.members
    cells = [_cell(each, kind) for each in value]
    return _SPOILED if _SPOILED in cells else cells


def _struct(value: object, inner: Held) -> Any:
    if not isinstance(value, dict):
        return _SPOILED
    cells = {name: _cell(value.get(name), kind) for name, kind in inner.members}
    return _SPOILED if _SPOILED in cells.values() else cells


def _string(value: object, _kind: str) -> Any:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value, default=float).decode()
    except orjson.JSONEncodeError:  # it is nested deeper than can be written
        return _SPOILED


def _whole(value: object, kind: str) -> Any:
    end = _ENDS[kind]
    fits = (
        isinstance(value, int) and not isinstance(value, bool) and -end <= value < end
    )
    return value if fits else _SPOILED


def _double(value: object, _kind: str) -> Any:
    fits = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return float(value) if fits else _SPOILED  # type: ignore[arg-type]


def _boolean(value: object, _kind: str) -> Any:
    return value if isinstance(value, bool) else _SPOILED


def _time(value: object, _kind: str) -> Any:
    return value if isinstance(value, str) else _SPOILED


def _decimal(value: object, _kind: str) -> Any:
    fits = isinstance(value, int | float | Decimal | str) and not isinstance(
        value, bool
    )
    return str(value) if fits else _SPOILED


_CELLS: Mapping[str, Callable[[object, str], Any]] = {
    "string": _string,
    "int": _whole,
    "bigint": _whole,
    "double": _double,
    "boolean": _boolean,
    "date": _time,
    "timestamp": _time,
    "decimal": _decimal,
}


def _is_infinite(values: pa.Array) -> bool:
    """Whether a figure was too large, which Arrow takes for one that has no end."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_floating(values.type):
        return bool(compute.any(compute.is_inf(values)).as_py())
    if pa.types.is_list(values.type):
        return _is_infinite(values.flatten())
    if pa.types.is_struct(values.type):
        return any(map(_is_infinite, values.flatten()))
    return False


def _row(line: bytes, has_decimals: bool) -> dict[str, object] | None:
    """Return an object as Arrow takes it: a figure that is too large is no matter where no
    column wants it; and with all digits of its figures, if it has decimals."""
    row = _object(line)
    is_refused = row is None and _LARGE.search(line)
    if is_refused or (has_decimals and _LONG.search(line)):
        return _exact(line) or row
    return row


def _exact(line: bytes) -> dict[str, object] | None:
    """Return an object whose figures are those of its text, or _SPOILED."""
    try:
        value = json.loads(
            line.decode(),
            parse_float=_figure,
            parse_int=_whole_figure,
            parse_constant=_no_figure,
        )
        orjson.dumps(value, default=str)  # half a character has no UTF-8
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _figure(text: str) -> Any:
    return _SPOILED if math.isinf(float(text)) else Decimal(text)


def _whole_figure(text: str) -> Any:
    number = int(text) if len(text) <= _DIGITS else None
    is_whole = number is not None and -(2**63) <= number < 2**64
    return number if is_whole else _figure(text)


def _no_figure(text: str) -> Any:
    raise ValueError(text)


def _object(line: bytes) -> dict[str, object] | None:
    try:
        value = orjson.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _array(data: bytes) -> list[object]:
    try:
        value = orjson.loads(utf8(data))
    except ValueError as error:
        raise BadInput(f"it begins as an array of JSON, and is none: {error}") from None
    if not isinstance(value, list):
        raise BadInput("it begins as an array of JSON, and is none")
    return value


def _lines(every: Sequence[object]) -> list[bytes]:
    try:
        return [orjson.dumps(each) for each in every]
    except orjson.JSONEncodeError as error:
        raise BadInput(f"its array cannot be taken apart: {error}") from None


def _blocks(
    texts: Iterator[bytes], is_start: bool = True
) -> Iterator[tuple[bytes, bool]]:
    """Give lines of a text, some at a time; or all of it if it is an array, and so said."""
    rest, is_begun, is_array = b"", not is_start, False
    for block in unix(texts):
        rest += block
        if not is_begun and (head := rest.lstrip()):
            is_begun, is_array = True, head.startswith(b"[")
        if len(rest) > _LONGEST and (is_array or b"\n" not in rest):
            raise ValueError(f"it has a line or array of more than {_LONGEST:,} bytes")
        if is_begun and not is_array:
            lines, newline, rest = rest.rpartition(b"\n")
            if newline:
                yield lines + newline, False
    if rest.strip():
        yield rest if is_array else rest + b"\n", is_array


def inferred(texts: Iterator[bytes]) -> tuple[Column, ...]:
    """Return the columns of a text by its first objects; none: it has no objects."""
    values: dict[str, list[object]] = {}
    for row in itertools.islice(_objects(texts), _SAMPLE):
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return schemas.stated(
        [Column(name=name, kind=_kind(column)) for name, column in values.items()]
    )


def _objects(texts: Iterator[bytes]) -> Iterator[dict[str, object]]:
    for data, is_array in _blocks(texts):
        every = _array(data) if is_array else map(_object, utf8(data).split(b"\n"))
        yield from (row for row in every if isinstance(row, dict))


def _kind(values: Sequence[object]) -> str:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {str}:
        return schemas.kind_of(pa.array(values, pa.string()), schemas.TIMES)
    if kinds == {bool}:
        return "boolean"
    if kinds == {int}:
        return "bigint"
    return "double" if kinds and kinds <= {int, float} else schemas.STRING
