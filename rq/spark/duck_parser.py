"""Lines taken apart by a regular expression, in Arrow, as DuckDB reads them."""

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
_TIME_PARTS = "%d/%b/%Y:%H:%M:%S %z"


class Parser:
    """A regular expression, and which columns of the lines stay beside its groups."""

    def __init__(self, form: str, columns: Sequence[str]) -> None:
        expression = parsing.FORMS.get(form, form)
        self.names = list(parsing.names(expression))
        self._kept = [name for name in parsing.KEPT if name in columns]
        self.is_usual = form in parsing.FORMS
        if self.is_usual:
            self._pattern = _greedy(expression)
            self._odd = _greedy(parsing.MALFORMED[form])
        else:
            self._pattern = _nameless(expression)
            _demand(self._pattern, expression)

    def rejects(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the lines that do not fit."""
        from pyarrow import compute

        _, malformed = self._columns(batch)
        return batch.filter(compute.is_null(malformed))

    def fitting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return those that do, as columns of text, and whether they are malformed."""
        import pyarrow as pa
        from pyarrow import compute

        columns, malformed = self._columns(batch)
        named = {name: batch.column(name) for name in self._kept} | columns
        if self.is_usual:
            named[parsing.FLAG] = malformed
        rows = pa.RecordBatch.from_arrays(list(named.values()), list(named))
        return rows.filter(compute.is_valid(malformed))

    def malformed(self, rows: pa.RecordBatch) -> int:
        """Return how many of fitting lines are malformed."""
        return rows.column(parsing.FLAG).true_count if self.is_usual else 0

    def schema(self, lines: pa.Schema) -> pa.Schema:
        """Return that of `fitting`, for lines of a schema."""
        import pyarrow as pa

        return self.fitting(pa.RecordBatch.from_pylist([], lines)).schema

    def typed(self) -> str:
        """Return what makes time and figures of the text of usual columns, in SQL."""
        columns = [f'"{name}"' for name in self._kept]
        for name in self.names:
            kind = parsing.TYPES.get(name) if self.is_usual else None
            if kind:
                columns.append(f'try_cast("{name}" AS {kind}) AS "{name}"')
            elif self.is_usual and name == "time":
                columns.append(_time(name))
            else:
                columns.append(f'"{name}"')
        if self.is_usual:
            columns.append(f'"{parsing.FLAG}"')
        return ", ".join(columns)

    def _columns(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], pa.Array]:
        """Return the columns of lines, and whether each is malformed: null if it does
        not fit."""
        from pyarrow import compute

        lines = batch.column("line")
        groups = compute.extract_regex(lines, self._pattern)
        columns = dict(zip(self.names, groups.flatten(), strict=True))
        fits = compute.is_valid(groups)
        malformed = compute.if_else(fits, False, None)
        others = compute.invert(fits)
        if not self.is_usual or not others.true_count:
            return columns, malformed
        pieces, is_one = _of_malformed(lines.filter(others), self._odd)
        flags = compute.if_else(is_one, True, None)
        return {
            name: compute.replace_with_mask(column, others, pieces[name])
            for name, column in columns.items()
        }, compute.replace_with_mask(malformed, others, flags)


def _time(name: str) -> str:
    parsed = f"try_strptime(\"{name}\", '{_TIME_PARTS}')"
    fits = f"regexp_matches(\"{name}\", '{parsing.TIME}')"
    return f'CASE WHEN {fits} THEN {parsed} END AS "{name}"'


def _of_malformed(
    lines: pa.Array, pattern: str
) -> tuple[dict[str, pa.Array], pa.Array]:
    """Return what is known of malformed lines, null what is not; and which are such."""
    from pyarrow import compute

    groups = compute.extract_regex(lines, pattern)
    columns = _flat(groups)
    columns |= _flat(compute.extract_regex(columns["request"], parsing.REQUEST))
    return {
        name: compute.if_else(compute.not_equal(text, ""), text, None)
        for name, text in columns.items()
    }, compute.is_valid(groups)


def _flat(groups: pa.StructArray) -> dict[str, pa.Array]:
    names = [field.name for field in groups.type]
    return dict(zip(names, groups.flatten(), strict=True))


def _greedy(expression: str) -> str:
    """Return a usual form as RE2 knows it, which never goes back into a loop."""
    return _nameless(expression.replace("*+", "*"))


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
