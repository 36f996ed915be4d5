"""Rules that rows of a table keep or break: conditions that mean the same on both engines.

`q.expect` counts the rows that break one, and the job fails; `q.contract` marks each row with
the first that it breaks, and what is marked goes into a table of its own.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from rq.errors import BadInput
from rq.spark.functions import F
from rq.words import visible

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    Condition = Callable[[], Column]  # true where a row breaks the rule

MARK = "_rq_breaks"  # a column: the number of the first rule that a row breaks, or 0
TIMES = "_rq_times"  # a column: how many rows have the key of this one
KEY_TIMES = "_rq_key_times"  # the same, of the key of a merge
PLACE = "_rq_place"  # a column: how many rows of the key come after this one
_OWN = (MARK, TIMES, KEY_TIMES, PLACE)
_MERGING = "__delta_rs_"  # how columns begin that delta-rs has beside those of a merge
NOT_NULL, UNIQUE = "not null", "unique"
_LISTED = 20  # allowed values that a rule names


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a column promises."""

    columns: tuple[str, ...]
    text: str  # as people read it
    is_broken: Condition
    ends: bool = False  # whether one row that breaks it ends the batch


def not_null(name: str) -> Rule:
    return Rule(
        columns=(name,),
        text=NOT_NULL,
        is_broken=lambda: column(name).isNull(),
    )


def unique(names: Sequence[str], times: str = TIMES) -> Rule:
    """A rule of rows that have a column of how many have their key."""
    return Rule(
        columns=tuple(names), text=UNIQUE, is_broken=lambda: column(times) > F.lit(1)
    )


def within(name: str, least: Any, most: Any) -> Rule:
    """A rule that a column is neither less nor more than something; None: no such end."""
    texts = [
        f"at {word} {value}"
        for word, value in (("least", least), ("most", most))
        if value is not None
    ]

    def is_broken() -> Column:
        is_out = []
        if least is not None:
            is_out.append(column(name) < F.lit(least))
        if most is not None:
            is_out.append(column(name) > F.lit(most))
        return reduce(lambda a, b: a | b, is_out)

    return Rule(columns=(name,), text=" and ".join(texts), is_broken=is_broken)


def one_of(name: str, values: Sequence[Any]) -> Rule:
    more = ", …" if len(values) > _LISTED else ""
    listed = ", ".join(visible.line(str(value)) for value in values[:_LISTED])
    return Rule(
        columns=(name,),
        text=f"one of {listed}{more}",
        is_broken=lambda: ~column(name).isin(*values),
    )


def column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def marked(rows: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return rows with MARK beside them."""
    broken = [F.when(rule.is_broken(), F.lit(n)) for n, rule in enumerate(rules, 1)]
    return rows.withColumn(MARK, F.coalesce(*broken, F.lit(0)))


def demand_columns(verb: str, names: Sequence[str], rows: DataFrame) -> None:
    """Raise BadInput unless rows have some columns."""
    strange = {*names} - {*rows.columns}
    if strange:
        raise BadInput(
            f"{verb}: there is no column {min(strange)!r:.60}; there are "
            f"{visible.line(', '.join(rows.columns))}"
        )


def demand_free(name: str, rows: DataFrame) -> None:
    """Raise BadInput if rows have a column that is called as those which stand beside them
    meanwhile: it would be taken for one of these."""
    for column in rows.columns:
        if column.lower() in _OWN or column.lower().startswith(_MERGING):
            raise BadInput(
                f"q.table: {name}: the column {visible.line(column)} is RQ's own: rename it"
            )


# ---- what columns are compared with

_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    "string": (str,),
    "boolean": (bool,),
    "date": (datetime.date,),
    "timestamp": (datetime.datetime,),
    "decimal": (int, Decimal),
}
_FROM_TEXT: Mapping[str, Callable[[str], Any]] = {
    "date": datetime.date.fromisoformat,
    "timestamp": datetime.datetime.fromisoformat,
    "decimal": Decimal,
}


def value(kind: str, stated: object) -> Any:
    """Return what a column of a type of Delta is compared with; ValueError.

    >>> value("date", "2026-01-02"), value("long", 3)
    (datetime.date(2026, 1, 2), 3)
    """
    kind = kind.partition("(")[0]
    if isinstance(stated, str) and kind in _FROM_TEXT:
        try:
            stated = _FROM_TEXT[kind](stated)
        except ArithmeticError:
            raise ValueError from None
    if isinstance(stated, bool) != (kind == "boolean"):
        raise ValueError
    if not isinstance(stated, _KINDS.get(kind, ())):
        raise ValueError
    if isinstance(stated, datetime.datetime) and stated.tzinfo is None:
        return stated.replace(tzinfo=datetime.UTC)
    return stated
