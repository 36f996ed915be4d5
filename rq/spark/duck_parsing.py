"""Lines into columns by a regular expression with named groups, for DuckDB: Arrow takes
them apart while they are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import failures, parsing

if TYPE_CHECKING:
    import pyarrow as pa

# What is escaped, and a set of characters, begin no group.
_GROUPS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)
_TIME = "%d/%b/%Y:%H:%M:%S %z"


class Parser:
    """A regular expression, and which columns of the lines stay beside its groups."""

    def __init__(self, form: str, columns: Sequence[str]) -> None:
        expression = parsing.FORMS.get(form, form)
        self.names = list(parsing.names(expression))
        self._kept = [name for name in parsing.KEPT if name in columns]
        self._is_usual = form in parsing.FORMS
        self._pattern = _nameless(expression)
        _demand(self._pattern, expression)

    def rejects(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the lines that do not fit."""
        from pyarrow import compute

        return batch.filter(compute.is_null(self._groups(batch)))

    def fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return those that do, as columns of text."""
        import pyarrow as pa
        from pyarrow import compute

        groups = self._groups(batch)
        fits = compute.is_valid(groups)
        columns = [*(batch.column(name) for name in self._kept), *groups.flatten()]
        names = [*self._kept, *self.names]
        return pa.RecordBatch.from_arrays(columns, names).filter(fits)

    def schema(self, lines: pa.Schema) -> pa.Schema:
        """Return that of `fitting`, for lines of a schema."""
        import pyarrow as pa

        return self.fitting(pa.RecordBatch.from_pylist([], lines)).schema

    def typed(self) -> str:
        """Return what makes time and figures of the text of usual columns, in SQL."""
        columns = [f'"{name}"' for name in self._kept]
        for name in self.names:
            kind = parsing.TYPES.get(name) if self._is_usual else None
            if kind:
                columns.append(f'try_cast("{name}" AS {kind}) AS "{name}"')
            elif self._is_usual and name == "time":
                columns.append(f'try_strptime("{name}", \'{_TIME}\') AS "{name}"')
            else:
                columns.append(f'"{name}"')
        return ", ".join(columns)

    def _groups(self, batch: pa.RecordBatch) -> pa.StructArray:
        from pyarrow import compute

        return compute.extract_regex(batch.column("line"), self._pattern)


def _nameless(expression: str) -> str:
    """Return an expression that keeps its named groups only.

    >>> _nameless(r"(?P<a>(x|[(]\\(+))(y)")
    '(?P<a>(?:x|[(]\\\\(+))(?:y)'
    """
    return _GROUPS.sub(lambda part: "(?:" if part[0] == "(" else part[0], expression)


def _demand(pattern: str, expression: str) -> None:
    """Raise BadInput unless Arrow can use a pattern."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        compute.extract_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        why = failures.first_line(error)
        raise BadInput(
            f"{expression!r:.200} cannot be used on DuckDB ({why}), which knows neither "
            "lookarounds nor back references; Spark does"
        ) from None
