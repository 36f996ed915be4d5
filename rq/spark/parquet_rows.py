"""Rows of Parquet, as both engines get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from rq.errors import BadInput
from rq.spark import nested, schemas
from rq.spark.schemas import Column

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 65_536  # of a batch
_WIDER = {("int", "bigint")}  # types of files that another type takes


class Reader:
    """Makes columns of one file."""

    def __init__(self, columns: Sequence[Column], kept: str = "") -> None:
        self._columns = columns
        self._kept = kept  # what holds the columns, if no others may be there

    def rows(self, file: BinaryIO) -> Iterator[pa.RecordBatch]:
        """Give the rows of a file: lineno (the number of the row), its columns,
        `_rescued`, which is null. BadInput."""
        from pyarrow import parquet

        with parquet.ParquetFile(file) as opened:
            self._demand(opened.schema_arrow)
            names, line = [column.name for column in self._columns], 1
            for rows in opened.iter_batches(_ROWS, columns=names):
                cells = [
                    _as(rows.column(column.name), column) for column in self._columns
                ]
                lines = range(line, line + rows.num_rows)
                yield schemas.batch(self._columns, lines, cells, None)
                line += rows.num_rows

    def _demand(self, schema: pa.Schema) -> None:
        schemas.demand_names(schema.names, self._columns, self._kept)
        for column in self._columns:
            kind = _kind(schema.field(column.name).type)
            if kind != column.kind and (kind, column.kind) not in _WIDER:
                had = kind or schema.field(column.name).type
                raise BadInput(
                    f"its column {column.name!r:.60} is {had}, not {column.kind}"
                    f"{schemas.hint(self._kept)}"
                )


def _as(cells: pa.Array, column: Column) -> pa.Array:
    # Times may be finer than a microsecond.
    return cells.cast(column.types[0], safe="timestamp" not in column.kind)


def _kind(kind: pa.DataType) -> str:
    """Return a type of Arrow as one of a schema; nothing: there is none."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_nested(kind):
        return _nested(kind)
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = (
        (pa.types.is_string, "string"),
        (pa.types.is_large_string, "string"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_floating, "double"),
        (lambda kind: pa.types.is_integer(kind) and kind.bit_width < 32, "int"),
        (pa.types.is_int32, "int"),
        (pa.types.is_int64, "bigint"),
        (pa.types.is_uint32, "bigint"),
    )
    return next((name for test, name in names if test(kind)), "")


def _nested(kind: pa.DataType) -> str:
    import pyarrow as pa

    is_list = (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )
    if is_list:
        members = [("", _kind(kind.value_type))]
    elif pa.types.is_struct(kind) and kind.num_fields:
        members = [(field.name, _kind(field.type)) for field in kind]
    else:  # a map, or a union
        return ""
    fits = all(member and "`" not in name for name, member in members)
    return nested.written(members, is_list) if fits else ""


def inferred(file: BinaryIO) -> tuple[Column, ...]:
    """Return the columns of a file; BadInput."""
    from pyarrow import parquet

    schema = parquet.read_schema(file)
    for field in schema:
        if not _kind(field.type):
            raise BadInput(
                f"its column {field.name!r:.60} is {field.type}, which is not read: name "
                "the others in a schema"
            )
    return schemas.stated(
        [Column(name=field.name, kind=_kind(field.type)) for field in schema]
    )
