"""`q.contract`: what each row of a table keeps, stated in the job.

- Types are those of the whole DataFrame, and are compared before a row is read.
- The rules of rows become one column of numbers on the engine. The tasks put the rows that
  break none into the files of the table, and the others, as text, into those of
  `NAME__rejected`: each row is read once, and is in one of the two.
- Both are of one decision, so each batch is in both once. Too many rejected rows end it before
  anything is decided.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from rq.checks import Check, Kind
from rq.errors import BadInput
from rq.spark import arguments, delta_schemas, delta_types, rules, schemas
from rq.spark.delta_goals import MERGE, Goal
from rq.spark.rules import Rule
from rq.words import visible
from rq.words.wording import several

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_INEXACT = ("float", "double")  # types of which equal values are hardly equal
_NO_KEY = "merge needs a key in each row"
_SEVERAL = (
    "several rows of this batch have this key: name the column by which the last one "
    'wins, as in order="changed"'
)
_TIED = (
    "several rows of this batch have this key, and the same order: none is the last "
    "(of rows that are equal, `.distinct()` keeps one)"
)
LONGEST = 54  # characters of the name of a table that has another one beside it


class Stated(TypedDict, total=False):
    """What a job says of a column."""

    type: str
    not_null: bool
    least: Any
    most: Any
    one_of: Sequence[Any]


class Engine(Protocol):
    """What of an engine a contract needs."""

    def schema(self, table: DataFrame) -> pa.Schema:
        """Return the columns of a table."""

    def counted(self, table: DataFrame, key: Sequence[str], name: str) -> DataFrame:
        """Return a table with one more column: how many rows have the key of this one."""

    def last(self, table: DataFrame, key: Sequence[str], order: str) -> DataFrame:
        """Return the rows that are the last ones of their key, by a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What a job promises of a table."""

    name: str
    columns: Mapping[str, Stated]
    unique: tuple[str, ...] = ()
    most_rejects: float | None = None  # share of the rows; None: not all

    @property
    def not_null(self) -> tuple[str, ...]:
        stated = (name for name, said in self.columns.items() if said.get("not_null"))
        return tuple(dict.fromkeys([*stated, *self.unique]))

    def result(self, rows: int, rejected: int) -> Check:
        """Return whether it holds of the rows of a batch, in words."""
        why = self.check(rows, rejected)
        text = why or f"{rejected:,} of {several(rows, 'row')} rejected"
        return Check(kind=Kind.CONTRACT, table=self.name, text=text, holds=not why)

    def check(self, rows: int, rejected: int) -> str:
        """Return, in words, why too many rows break it; nothing if that is not so."""
        limit = self.most_rejects
        if not rejected or (
            rejected < rows if limit is None else rejected <= limit * rows
        ):
            return ""
        most = "" if limit is None else f", at most {limit:.0%} may"
        return f"{self.name}: {rejected:,} of {rows:,} rows break the contract{most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Rows as they are written; those that something is promised of have marks."""

    rows: DataFrame
    goal: Goal


def stated(
    name: str,
    columns: Mapping[str, str | Stated],
    unique: Sequence[str],
    most_rejects: float | None,
) -> Contract:
    """Return what a job says of a table; BadInput."""
    if len(name.rpartition("/")[2]) > LONGEST:
        raise BadInput(
            f"q.contract: {name}__rejected is too long for the name of a table: "
            f"{LONGEST} characters before it at most"
        )
    kinds = dict.fromkeys(columns, arguments.COLUMN)
    arguments.demand("q.contract", kinds, columns.items())
    said = {column: _said(column, about) for column, about in columns.items()}
    return Contract(
        name=name, columns=said, unique=tuple(unique), most_rejects=most_rejects
    )


def _said(column: str, about: str | Stated) -> Stated:
    """Return what is said of a column, as a text or at length.

    >>> _said("id", "long not null")
    {'type': 'long', 'not_null': True}
    """
    if isinstance(about, str):
        kind = about.lower().removesuffix(rules.NOT_NULL).strip()
        said: Stated = {"not_null": kind != about.lower().strip()}
        return {"type": kind, **said} if kind else said
    arguments.demand(f"q.contract: {column!r:.60}", arguments.OF_COLUMN, about.items())
    return about


def apply(
    contract: Contract | None,
    goal: Goal,
    table: DataFrame,
    tables: Engine,
    batch_id: str,
) -> Applied:
    """Mark the rows of a table that break a contract, or cannot be merged; BadInput if its
    columns are not those that were named."""
    if contract is not None or goal.mode == MERGE:
        rules.demand_free(goal.name, table)
    if goal.mode == MERGE:
        table = _last(goal, table, tables)
    every, merged = [], _of_merge(contract, goal)
    if contract is not None:
        every = _of_contract(contract, table, tables)
        goal = replace(goal, not_null=contract.not_null)
        table = _with_times(table, contract.unique, rules.TIMES, tables)
    if merged:
        table = _with_times(table, goal.key, rules.KEY_TIMES, tables)
    if contract is None and not merged:
        return Applied(rows=table, goal=goal)
    every += merged
    rows = rules.marked(table, every).drop(rules.TIMES, rules.KEY_TIMES)
    return Applied(rows=rows, goal=replace(goal, contract=_text(every, batch_id)))


def _with_times(
    table: DataFrame, key: Sequence[str], name: str, tables: Engine
) -> DataFrame:
    return tables.counted(table, key, name) if key else table


def _last(goal: Goal, table: DataFrame, tables: Engine) -> DataFrame:
    """Return the rows that are the last ones of their keys."""
    order = [goal.order] if goal.order else []
    rules.demand_columns("q.table", [*goal.key, *order], table)
    kinds = _kinds(tables.schema(table))
    for name in [*goal.key, *order]:
        if "<" in kinds[name] or (name in goal.key and kinds[name] in _INEXACT):
            raise BadInput(
                f"q.table: {goal.name}: {visible.line(name)} is {kinds[name]}, and neither "
                "a key nor an order is nested, nor a key a fraction"
            )
    return tables.last(table, goal.key, goal.order) if order else table


def _of_merge(contract: Contract | None, goal: Goal) -> list[Rule]:
    """Return the rules of the rows that are merged; one that breaks them ends the batch,
    unless it breaks the contract as well."""
    if goal.mode != MERGE or (contract and set(contract.unique) == set(goal.key)):
        return []
    nulls = [
        replace(rules.not_null(name), text=_NO_KEY, ends=True) for name in goal.key
    ]
    text = _TIED if goal.order else _SEVERAL
    twice = rules.unique(goal.key, rules.KEY_TIMES)
    return [*nulls, replace(twice, text=text, ends=True)]


def _of_contract(contract: Contract, table: DataFrame, tables: Engine) -> list[Rule]:
    """Return the rules of a contract; BadInput if the columns are others."""
    named = [*contract.columns, *contract.unique]
    rules.demand_columns("q.contract", named, table)
    kinds = _kinds(tables.schema(table))
    for name, said in contract.columns.items():
        if "type" in said:
            _demand_type(contract.name, name, said["type"], kinds[name])
    every = [
        rule
        for name, said in contract.columns.items()
        for rule in _of_column(name, said, kinds[name])
    ]
    return every + _of_keys(contract)


def _kinds(schema: pa.Schema) -> dict[str, str]:
    from deltalake import Schema

    return delta_schemas.columns(
        Schema.from_arrow(delta_types.shaped(schema)).to_json()
    )


def _demand_type(table: str, name: str, stated: str, kind: str) -> None:
    import pyarrow as pa

    [column] = schemas.parsed(f"`{name}` {stated}")
    wanted = _kinds(pa.schema([pa.field(name, column.types[0])]))[name]
    if kind != wanted:
        raise BadInput(
            f"q.contract: {table}: the column {visible.line(name)} is {kind} here, the "
            f"contract says {wanted}: cast it"
        )


def _of_column(name: str, said: Stated, kind: str) -> list[Rule]:
    every = [rules.not_null(name)] if said.get("not_null") else []
    least, most = (
        None if said.get(word) is None else _value(name, kind, word, said.get(word))
        for word in ("least", "most")
    )
    if least is not None or most is not None:
        every.append(rules.within(name, least, most))
    if "one_of" in said:
        values = [_value(name, kind, "one_of", value) for value in said["one_of"]]
        every.append(rules.one_of(name, values))
    return every


def _value(name: str, kind: str, word: str, stated: object) -> Any:
    try:
        return rules.value(kind, stated)
    except ValueError:
        raise BadInput(
            f"q.contract: {visible.line(name)} is {kind}, and {word} says {stated!r:.60}: "
            "say a value of that type"
        ) from None


def _of_keys(contract: Contract) -> list[Rule]:
    """Return the rules of the key: a row without one has none."""
    if not contract.unique:
        return []
    stated = [name for name, said in contract.columns.items() if said.get("not_null")]
    missing = [rules.not_null(name) for name in contract.unique if name not in stated]
    return [*missing, rules.unique(contract.unique)]


def _text(every: Sequence[Rule], batch_id: str) -> str:
    about = [[rule.columns, rule.text, rule.ends] for rule in every]
    return json.dumps({"rules": about, "batch": batch_id, "time": time.time()})
