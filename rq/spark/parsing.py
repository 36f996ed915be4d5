"""Lines into columns by a regular expression with named groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import expectations, failures
from rq.spark.expectations import Parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_QUOTED = r'"(?P<{}>(?:[^"\\]|\\.)*)"'
_COMMON = (
    r"^(?P<host>\S+) (?P<ident>\S+) (?P<user>\S+) \[(?P<time>[^\]]+)\] "
    r'"(?P<method>[A-Z]+) (?P<url>\S+)(?: (?P<protocol>\S+))?" '
    r"(?P<status>\d{3}) (?P<bytes>\d+|-)"
)
# What Apache and nginx call so.
FORMS = {
    "common": _COMMON,
    "combined": f"{_COMMON} {_QUOTED.format('referer')} {_QUOTED.format('agent')}",
}
# What is escaped comes first: it begins no group.
_NAMED = re.compile(r"\\.|\(\?P<(?P<group>\w+)>|\(\?P=(?P<again>\w+)\)", re.DOTALL)
KEPT = ("msg_id", "src", "file", "lineno")
_TIME = "dd/MMM/yyyy:HH:mm:ss Z"
TYPES = {"status": "int", "bytes": "long"}


def split(
    lines: DataFrame, form: str, most_rejects: float | None = None
) -> tuple[DataFrame, Parsed]:
    """Return lines as columns, and those that the expression does not fit, of which
    there may be a share of `most_rejects`; None: any, but not all."""
    from pyspark.sql import functions

    expression = FORMS.get(form, form)
    groups = names(expression)
    pattern = _by_number(expression, groups)
    _demand(lines.sparkSession, pattern, expression)
    line = functions.col("line")
    columns = [
        _typed(name, functions.regexp_extract(line, pattern, index), form in FORMS)
        for name, index in groups.items()
    ]
    fits = functions.coalesce(line.rlike(pattern), functions.lit(False))
    kept = [name for name in KEPT if name in lines.columns]
    counted = expectations.marked(lines, fits)
    table = expectations.fitting(counted.observed, True).select(*kept, *columns)
    rejects = expectations.fitting(counted.observed, False)
    return table, Parsed(form, rejects, counted, most_rejects)


def _by_number(expression: str, names: dict[str, int]) -> str:
    """Return an expression whose groups have numbers only: Java takes no `_` in a name.

    >>> _by_number(r"(?P<dep_time>\\d+)(?P=dep_time)", {"dep_time": 1})
    '(\\\\d+)(?:\\\\1)'
    """

    def plain(part: re.Match[str]) -> str:
        if part["group"]:
            return "("
        return f"(?:\\{names[part['again']]})" if part["again"] else part[0]

    return _NAMED.sub(plain, expression)


def _demand(session: SparkSession, pattern: str, expression: str) -> None:
    """Raise BadInput unless Java can use a pattern: an action would not name it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        session._jvm.java.util.regex.Pattern.compile(pattern)
    except (Py4JJavaError, PySparkException) as error:
        why = failures.first_line(error)
        raise BadInput(
            f"{expression!r:.200} cannot be used on Spark, whose regular expressions are "
            f"those of Java: {why}"
        ) from None


def names(expression: str) -> dict[str, int]:
    """Return the named groups of an expression, and their numbers; BadInput."""
    try:
        groups = dict(re.compile(expression).groupindex)
    except re.error as error:
        raise BadInput(
            f"{expression!r:.200} is not a regular expression: {error}"
        ) from None
    if not groups:
        forms = ", ".join(sorted(FORMS))
        raise BadInput(
            f"{expression!r:.200} has no named groups (?P<name>…) that could become "
            f"columns; known forms: {forms}"
        )
    return groups


def _typed(name: str, column: Column, is_known: bool) -> Column:
    from pyspark.sql import functions

    if is_known and name == "time":
        column = functions.try_to_timestamp(column, functions.lit(_TIME))
    elif is_known and name in TYPES:
        column = column.try_cast(TYPES[name])
    return column.alias(name)
