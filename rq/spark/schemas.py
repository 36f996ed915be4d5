"""Columns that a job states, or that were inferred: their names and types, and texts as
values of these.

Both engines get values from here, so a cell is the same on both: a text is a value of a type
if Arrow takes all of it for one, without rounding, and else it does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import nested
from rq.words import visible

if TYPE_CHECKING:
    import pyarrow as pa

LINE = "lineno"
BEFORE = ("msg_id", "src", "file", LINE)  # columns of RQ's own, before those of a file
RESCUED = "_rescued"  # the column behind them: the text of a row that does not fit
_OWN = {*BEFORE, RESCUED}
_COLUMN = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))\s+(?P<kind>[a-z_].*)",
    re.IGNORECASE | re.DOTALL,
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = 38  # of a decimal, at most
# What a type may be called, and its name in Spark.
_KINDS = {
    **dict.fromkeys(("string", "text", "varchar"), "string"),
    **dict.fromkeys(("int", "integer"), "int"),
    **dict.fromkeys(("long", "bigint"), "bigint"),
    **dict.fromkeys(("double", "float"), "double"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    "date": "date",
    "timestamp": "timestamp",
}
STRING = "string"
TIMES = ("date", "timestamp")
_INFERRED = ("bigint", "double", *TIMES, "boolean")  # the first that takes all
_NAMED = 20  # columns that a sentence names


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of files."""

    name: str  # in the files
    kind: str  # as Spark calls it

    @property
    def in_table(self) -> str:
        """Its name in a table, where some names are RQ's own."""
        return f"{self.name}_" if self.name in _OWN else self.name

    @property
    def types(self) -> list[pa.DataType]:
        """What a text may be read as, the first that takes it: a time without a zone is
        one of UTC. The first is the type of the column."""
        return _types(self.kind)


def _types(kind: str) -> list[pa.DataType]:
    import pyarrow as pa

    if inner := nested.held(kind):
        members = [(name, _types(member)[0]) for name, member in inner.members]
        return [pa.list_(members[0][1]) if inner.is_list else pa.struct(members)]
    if parts := _DECIMAL.fullmatch(kind):
        return [pa.decimal128(int(parts[1]), int(parts[2]))]
    return {
        "string": [pa.string()],
        "int": [pa.int32()],
        "bigint": [pa.int64()],
        "double": [pa.float64()],
        "boolean": [pa.bool_()],
        "date": [pa.date32()],
        "timestamp": [pa.timestamp("us", "UTC"), pa.timestamp("us")],
    }[kind]


def parsed(text: str) -> tuple[Column, ...]:
    """Return the columns of `id long, price decimal(10,2)`; BadInput.

    >>> [f"{column.name}: {column.kind}" for column in parsed("id long, `a b` Text")]
    ['id: bigint', 'a b: string']
    """
    columns = list[Column]()
    for piece in filter(str.strip, nested.pieces(text)):
        parts = _COLUMN.fullmatch(piece)
        if parts is None:
            raise BadInput(
                f"schema: {piece.strip()!r:.60} is no column: say NAME TYPE, as in "
                "'id long, price decimal(10,2)', and names with blanks in backquotes"
            )
        name = parts["quoted"] or parts["plain"]
        columns.append(Column(name=name, kind=_kind(parts["kind"])))
    _demand_different(columns)
    return tuple(columns)


def stated(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return columns that files have; BadInput."""
    if nameless := [n for n, column in enumerate(columns, 1) if not column.name]:
        raise BadInput(f"its column {nameless[0]} has no name: say the schema")
    if columns:
        _demand_different(columns)
    if odd := [column.name for column in columns if "`" in column.name]:
        raise BadInput(f"its column {odd[0]!r:.60} has a backquote in its name")
    return tuple(columns)


def _kind(text: str) -> str:
    if inner := nested.held(text):
        members = [(name, _kind(member)) for name, member in inner.members]
        if len({name.lower() for name, _ in members}) < len(members):
            raise BadInput(f"schema: {text.strip()!r:.60} has two members of one name")
        return nested.written(members, inner.is_list)
    kind = "".join(text.lower().split())
    if parts := _DECIMAL.fullmatch(kind):
        digits, behind = int(parts[1]), int(parts[2])
        if not 1 <= digits <= _DIGITS or behind > digits:
            raise BadInput(f"schema: {kind} is none: at most {_DIGITS} digits")
        return kind
    if kind not in _KINDS:
        types = ", ".join(sorted({*_KINDS.values()}))
        raise BadInput(
            f"schema: {text.strip()!r:.40} is no type: {types}, decimal(10,2), "
            "array<TYPE>, struct<NAME: TYPE>"
        )
    return _KINDS[kind]


def _demand_different(columns: Sequence[Column]) -> None:
    in_table = [column.in_table.lower() for column in columns]
    if not columns:
        raise BadInput("schema: it has no columns")
    if twice := [name for name in in_table if in_table.count(name) > 1]:
        raise BadInput(f"schema: there are two columns {twice[0]!r:.60}")


def demand_leaves(columns: Sequence[Column], kinds: Sequence[str], of: str) -> None:
    """Raise BadInput unless lists and structs hold no others than `kinds`; none: there are
    no such columns in what is read."""
    for column in columns:
        if nested.held(column.kind) is None:
            continue
        for leaf in nested.leaves(column.kind):
            if leaf not in kinds:
                what = (
                    f"what it holds may be {', '.join(kinds)}, not {leaf}"
                    if kinds
                    else f"{of} has no lists and no structs"
                )
                raise BadInput(
                    f"schema: {column.name!r:.60} is {column.kind}: {what}: say string, "
                    "and take it apart in the job"
                )


def described(columns: Sequence[Column]) -> str:
    """Return columns as `parsed` reads them, and Spark does."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in columns)


def table(columns: Sequence[Column]) -> str:
    """Return those of a table of files: with RQ's own, in Spark's words."""
    in_table = [Column(name=column.in_table, kind=column.kind) for column in columns]
    own = "msg_id string, src string, file string, lineno bigint"
    return f"{own}, {described(in_table)}, {RESCUED} string"


def arrow(columns: Sequence[Column]) -> pa.Schema:
    """Return the same in Arrow's."""
    import pyarrow as pa

    own = [(name, pa.string()) for name in BEFORE[:-1]]
    in_table = [(column.in_table, column.types[0]) for column in columns]
    return pa.schema([*own, (LINE, pa.int64()), *in_table, (RESCUED, pa.string())])


def demand_names(names: Sequence[str], columns: Sequence[Column], kept: str) -> None:
    """Raise BadInput unless a file with columns of some names has those of a schema, and
    no others if the schema is one that was `kept` of an earlier file."""
    for column in columns:
        count = names.count(column.name)
        if count != 1:
            has = f"{count} columns" if count else "no column"
            raise BadInput(
                f"it has {has} {column.name!r:.60}: its columns are {_listed(names)}"
                f"{hint(kept)}"
            )
    wanted = [column.name for column in columns]
    if kept and (others := [name for name in names if name not in wanted]):
        raise BadInput(f"it has another column, {others[0]!r:.60}{hint(kept)}")


def _listed(names: Sequence[str]) -> str:
    return visible.line(", ".join(names[:_NAMED]))


def hint(kept: str) -> str:
    """Return what to do about columns that differ from those of earlier files."""
    return (
        f"; columns were inferred once and are kept: say a schema, or forget them "
        f"(`rq spark schema forget`): {kept}"
        if kept
        else ""
    )


def batch(
    columns: Sequence[Column],
    lines: Sequence[int] | range | pa.Array,
    cells: Sequence[pa.Array],
    texts: Sequence[bytes | None] | None,
) -> pa.RecordBatch:
    """Return rows: their lines, cells of columns, and the texts of those that do not fit;
    None: all fit."""
    import pyarrow as pa

    rescued = (
        pa.nulls(len(lines), pa.string())
        if texts is None
        else pa.array([_as_text(text) for text in texts], pa.string())
    )
    names = [LINE, *(column.in_table for column in columns), RESCUED]
    if isinstance(lines, range):
        lines = numbers(lines.start, len(lines))
    if not isinstance(lines, pa.Array):
        lines = pa.array(lines, pa.int64())
    return pa.RecordBatch.from_arrays([lines, *cells, rescued], names)


def may_hold(texts: pa.Array, sign: str) -> bool:
    """Whether a sign is in the bytes of texts, some of which may be of other rows: that
    is seen many times faster than text by text."""
    data = texts.buffers()[2]
    return data is not None and sign.encode() in data.to_pybytes()


def numbers(first: int, count: int) -> pa.Array:
    """Return whole numbers one after the other; of a range of Python each would be an
    object, for which all threads wait."""
    from pyarrow import compute

    return compute.add(_counted(1 << count.bit_length()).slice(0, count), first)


@lru_cache(maxsize=2)
def _counted(length: int) -> pa.Array:
    import pyarrow as pa
    from pyarrow import compute

    ones = pa.repeat(pa.scalar(1, pa.int64()), length)
    return compute.cumulative_sum(ones, start=-1)


def _as_text(text: bytes | None) -> str | None:
    return None if text is None else text.rstrip(b"\n").decode("utf-8")


def whole(texts: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    return texts.chunk(0) if texts.num_chunks == 1 else texts.combine_chunks()


def rescued(rows: pa.RecordBatch) -> int:
    """Return how many rows do not fit."""
    if RESCUED not in rows.schema.names:
        return 0
    column = rows.column(RESCUED)
    return len(column) - int(column.null_count)


# ---- texts as values


def values(texts: pa.Array, column: Column) -> pa.Array:
    """Return texts as values of a column; null is what is empty, or does not fit."""
    first, *others = column.types
    if column.kind == STRING:
        return texts
    for kind in (first, *others):
        whole = _cast(texts, kind)
        if whole is not None:
            return whole.cast(first)
    return _halves(texts, column)


def kind_of(texts: pa.Array, kinds: Sequence[str] = _INFERRED) -> str:
    """Return the type that takes all of some texts. Digits behind a zero are no figure:
    who writes 00420 means the zeros."""
    from pyarrow import compute

    some = texts.filter(compute.fill_null(compute.not_equal(texts, ""), False))
    if (
        not len(some)
        or compute.any(compute.match_substring_regex(some, "^[+-]?0[0-9]")).as_py()
    ):
        return STRING
    for kind in kinds:
        types = Column(name="", kind=kind).types
        if any(_cast(some, type_) is not None for type_ in types):
            return kind
    return STRING


def spoiled(texts: pa.Array, cells: pa.Array) -> list[int]:
    """Return which cells have no value though their texts are not empty."""
    from pyarrow import compute

    if cells.null_count == texts.null_count:
        return []
    lost = compute.and_(compute.is_null(cells), compute.is_valid(texts))
    is_lost = compute.and_(lost, compute.fill_null(compute.not_equal(texts, ""), False))
    return list(compute.indices_nonzero(is_lost).to_pylist())


def _halves(texts: pa.Array, column: Column) -> pa.Array:
    """Do so where some do not fit: what cannot be cast as a whole is, in halves."""
    import pyarrow as pa

    count = len(texts)
    if count == 1:
        return pa.nulls(1, column.types[0])
    parts = [values(texts[: count // 2], column), values(texts[count // 2 :], column)]
    return pa.concat_arrays(parts)


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    import pyarrow as pa
    from pyarrow import compute

    # Arrow takes 0x1F for a whole number.
    if pa.types.is_integer(kind):
        for letter in filter(lambda letter: may_hold(texts, letter), "xX"):
            if compute.any(compute.match_substring(texts, letter)).as_py():
                return None
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return None
