"""Lines into columns by a regular expression with named groups."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rq.errors import BadInput
from rq.spark import expectations, failures
from rq.spark.expectations import Parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# What is written here three engines read (Java's, RE2 in Arrow, Python's for the names of
# groups), and all have to find the same: `.`, `\S` and `$` mean another set of characters
# in each. Java also walks a loop of alternatives by calls of itself, as deep as a text is
# long, unless the loop is possessive (`*+`); RE2 needs and knows no such thing. And no two
# loops of a form may share their characters, or a long line takes Java the square of its
# length: a time holds no `[`, at which what comes before it may end.
_WORD = r"[^\s\x0b]+"
_TEXT = r'(?:[^"\\]|\\[^\n])*+'  # between quotes
_BEGIN = rf"^(?P<host>{_WORD}) (?P<ident>{_WORD}) "
_TIME_STAMP = r"\[(?P<time>[^\[\]]+)\]"
_END = r"(?P<bytes>[0-9]+|-)"
_QUOTED = f' "(?P<referer>{_TEXT})" "(?P<agent>{_TEXT})"'
_COMMON = (
    rf"{_BEGIN}(?P<user>{_WORD}) {_TIME_STAMP} "
    rf'"(?P<method>[A-Z][A-Z-]*) (?P<url>{_WORD})(?: (?P<protocol>{_WORD}))?" '
    rf"(?P<status>[0-9]{{3}}) {_END}"
)
# A server writes a line for what was no request, too: nothing was sent, or TLS to a plain
# port, or a URL with a blank. Such a line has all its parts, and of some it is not known
# what they are.
_MALFORMED = (
    rf"{_BEGIN}(?P<user>[^\n]*?) {_TIME_STAMP} "
    rf'"(?P<request>{_TEXT})" (?P<status>[0-9]{{3}}|-) {_END}'
)
# What Apache and nginx call so.
FORMS = {"common": _COMMON, "combined": f"{_COMMON}{_QUOTED}"}
MALFORMED = {"common": _MALFORMED, "combined": f"{_MALFORMED}{_QUOTED}"}
# A request as far as it is one: its URL ends where the protocol begins, not at a blank.
REQUEST_PARTS = ("method", "url", "protocol")
REQUEST = (
    r"^(?P<method>[A-Za-z][A-Za-z-]*) (?P<url>[^\n]*?)"
    r"(?: (?P<protocol>HTTP/[0-9]+(?:\.[0-9]+)?))? ?\z"
)
_MARK = "\x1e"  # between the parts of a line
_PARTS, _ODD_PARTS = "_rq_parts", "_rq_odd_parts"  # columns beside lines
FLAG = "malformed"  # the column of the forms above that says so
# What is escaped comes first: it begins no group.
_NAMED = re.compile(r"\\.|\(\?P<(?P<group>\w+)>|\(\?P=(?P<again>\w+)\)", re.DOTALL)
KEPT = ("msg_id", "src", "file", "lineno")
# The parsers of time allow more than this, each of them something else.
TIME = (
    r"^[0-9]{2}/[A-Za-z]{3}/[1-9][0-9]{3}:[0-9]{2}:[0-9]{2}:[0-9]{2} "
    r"[+-](?:0[0-9]|1[0-7])[0-5][0-9]\z"
)
_TIME_PARTS = "dd/MMM/yyyy:HH:mm:ss Z"
TYPES = {"status": "int", "bytes": "long"}


def split(
    lines: DataFrame, form: str, most_rejects: float | None = None
) -> tuple[DataFrame, Parsed]:
    """Return lines as columns, and those that the expression does not fit, of which
    there may be a share of `most_rejects`; None: any, but not all."""
    from pyspark.sql import functions

    expression = FORMS.get(form, form)
    pattern = _by_number(expression, names(expression))
    _demand(lines.sparkSession, pattern, expression)
    apart = lines.withColumn(_PARTS, _taken_apart(functions.col("line"), expression))
    fits, malformed = _does_fit(_PARTS), functions.lit(False)
    columns = _parts_of(_PARTS, expression)
    if form in FORMS:
        odd = _taken_apart(functions.col("line"), MALFORMED[form])
        apart = apart.withColumn(_ODD_PARTS, functions.when(~fits, odd))
        malformed = _does_fit(_ODD_PARTS)
        columns = _either(columns, _of_malformed(MALFORMED[form]))
    kept = [name for name in KEPT if name in lines.columns]
    counted = expectations.marked(apart, fits, malformed)
    table = expectations.fitting(counted.observed).select(
        *kept, *(column.alias(name) for name, column in columns.items())
    )
    rejects = expectations.rejected(counted.observed).drop(_PARTS, _ODD_PARTS)
    return table, Parsed(form, rejects, counted, most_rejects, form in FORMS)


# Spark has no function that gives all groups of a match: `regexp_extract` looks for it
# once more for each of them. So the match, and what follows it, is replaced by its groups, and
# that is cut where a mark stands which a line holds hardly ever; if it does, its groups are
# taken one by one.


def _taken_apart(text: Column, expression: str) -> Column:
    """Return an array of a text: what comes before the match of an expression, and what
    its named groups have taken; of a text that does not match something alone."""
    from pyspark.sql import functions

    groups = names(expression)
    pattern, numbers = _by_number(expression, groups), groups.values()
    replaced = functions.regexp_replace(
        text,
        functions.lit(_and_rest(pattern, expression)),
        functions.lit("".join(f"{_MARK}${number}" for number in numbers)),
    )
    singly = functions.array(
        functions.lit(""),
        *(functions.regexp_extract(text, pattern, number) for number in numbers),
    )
    none = functions.array(functions.lit(""))
    return functions.when(
        text.contains(_MARK),
        functions.when(text.rlike(pattern), singly).otherwise(none),
    ).otherwise(functions.split(replaced, _MARK))


def _and_rest(pattern: str, expression: str) -> str:
    """Return an expression that takes all that follows, too."""
    # A comment may stand at the end of a verbose one.
    end = "\n" if re.compile(expression).flags & re.VERBOSE else ""
    return rf"(?:{pattern}{end})[\s\S]*"


def _does_fit(name: str) -> Column:
    """Whether a text was matched of which a column has the parts."""
    from pyspark.sql import functions

    return functions.coalesce(functions.size(name) > 1, functions.lit(False))


def _parts_of(name: str, expression: str) -> dict[str, Column]:
    """Return what the groups of an expression have taken, of a column of parts."""
    from pyspark.sql import functions

    groups = enumerate(names(expression), 1)
    return {group: functions.get(name, functions.lit(n)) for n, group in groups}


def _of_malformed(expression: str) -> dict[str, Column]:
    """Return what is known of a malformed line; null is what is not."""
    from pyspark.sql import functions

    columns = _parts_of(_ODD_PARTS, expression)
    request, pattern = columns.pop("request"), _by_number(REQUEST, {})
    for index, name in enumerate(REQUEST_PARTS, 1):
        columns[name] = functions.regexp_extract(request, pattern, index)
    return {
        name: functions.nullif(column, functions.lit(""))
        for name, column in columns.items()
    }


def _either(
    whole: dict[str, Column], malformed: dict[str, Column]
) -> dict[str, Column]:
    """Return the columns of a usual form, in which a line is whole or malformed."""
    from pyspark.sql import functions

    is_malformed = functions.col(expectations.MALFORMED_MARK)
    columns = {
        name: _typed(
            name, functions.when(is_malformed, malformed[name]).otherwise(text)
        )
        for name, text in whole.items()
    }
    return {**columns, FLAG: is_malformed}


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
    """Raise BadInput unless Java can use an expression: an action would not name it."""
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


def _typed(name: str, column: Column) -> Column:
    from pyspark.sql import functions

    if name == "time":
        time = functions.try_to_timestamp(column, functions.lit(_TIME_PARTS))
        return functions.when(column.rlike(TIME), time)
    return column.try_cast(TYPES[name]) if name in TYPES else column
