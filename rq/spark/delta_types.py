"""Types of Arrow as Delta keeps them, the same ones for both engines.

Delta knows no unsigned numbers and no nanoseconds, and a time without a zone only for
readers that are new. So whole numbers become the next larger ones with a sign, times are
microseconds in UTC (as all of a job's are), and what Delta has no type for is refused.
Columns may be null whatever an engine says: it says something else in each batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.words import visible

if TYPE_CHECKING:
    import pyarrow as pa

BY = b"rq_by"  # beside a file: columns that only its directory holds, with their types
_WIDER = {
    "uint8": "int16",
    "uint16": "int32",
    "uint32": "int64",
    "halffloat": "float",
    "large_string": "string",
    "string_view": "string",
    "large_binary": "binary",
    "binary_view": "binary",
}
_KEPT = frozenset(
    ["bool", "int8", "int16", "int32", "int64", "float", "double", "string", "binary"]
)
_NO_NAME = re.compile(r"[ ,;{}()\n\t=]")  # in none that Spark reads


def shaped(schema: pa.Schema) -> pa.Schema:
    """Return a schema as Delta keeps it; BadInput names the column that cannot be."""
    import pyarrow as pa

    _demand_names(schema.names)
    return pa.schema([pa.field(f.name, _type(f.type, f.name)) for f in schema])


def shape(
    batches: Iterable[pa.RecordBatch], by: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Give batches as Delta keeps them; they say which types the columns `by` have, which
    files do not hold."""
    import pyarrow as pa

    for batch in batches:
        schema = shaped(batch.schema)
        kinds = {name: str(schema.field(name).type) for name in by}
        try:
            yield pa.RecordBatch.from_arrays(
                [
                    _cast(*pair)
                    for pair in zip(batch.columns, schema.types, strict=True)
                ],
                schema=schema.with_metadata({BY: json.dumps(kinds).encode()}),
            )
        except pa.ArrowInvalid as error:
            raise BadInput(f"q.table: {error!s:.200}") from None


def _cast(column: pa.Array, to: pa.DataType) -> pa.Array:
    import pyarrow as pa

    # Nanoseconds lose what is below a microsecond, as Spark's own times do.
    is_finer = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return column if column.type == to else column.cast(to, safe=not is_finer)


def _demand_names(names: list[str]) -> None:
    for name in names:
        if not name or _NO_NAME.search(name):
            raise BadInput(
                f"q.table: the column {visible.line(name)!r:.60} has a name that tables "
                "cannot have: rename it, without blanks and , ; { } ( ) ="
            )
    small = [name.lower() for name in names]
    twice = [name for name in names if small.count(name.lower()) > 1]
    if twice:
        raise BadInput(
            f"q.table: there are columns {', '.join(map(repr, twice[:2]))}: in a table "
            "names differ by more than large and small letters"
        )


def _type(kind: pa.DataType, column: str) -> pa.DataType:
    import pyarrow as pa

    types = pa.types
    if str(kind) in _KEPT or types.is_date32(kind):
        return kind
    if str(kind) in _WIDER:
        return pa.type_for_alias(_WIDER[str(kind)])
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if types.is_date(kind):
        return pa.date32()
    if types.is_decimal(kind) and kind.precision <= 38:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_uint64(kind):
        return pa.decimal128(20, 0)
    return _nested(kind, column)


def _nested(kind: pa.DataType, column: str) -> pa.DataType:
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _type(kind.value_type, column)
    if types.is_map(kind):
        return pa.map_(_type(kind.key_type, column), _type(kind.item_type, column))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_type(kind.value_type, column))
    if types.is_struct(kind):
        _demand_names([field.name for field in kind])
        return pa.struct([pa.field(f.name, _type(f.type, column)) for f in kind])
    what = "has no type" if types.is_null(kind) else f"is of type {kind}"
    raise BadInput(
        f"q.table: {visible.line(column)} {what}, which tables do not have: cast it"
    )
