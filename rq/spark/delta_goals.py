"""What a job wants of a Delta table, and what of it is decided."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from rq.errors import BadInput

EVOLVE = {"add": True, "none": False}
APPEND, REPLACE, MERGE = "append", "replace_by", "merge"
MISSING = "deltalake is not installed: run `rq up --duckdb` or `rq up --spark`"
_MODES = (APPEND, REPLACE, MERGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a job wants of a table."""

    name: str
    where: str  # its directory
    by: tuple[str, ...] = ()
    evolve: str = "add"
    mode: str = APPEND
    key: tuple[str, ...] = ()  # of merge
    order: str = ""  # of merge: the column by which the last row of a key wins
    not_null: tuple[str, ...] = ()  # columns that must have a value, in a new table
    contract: str = ""  # what rows keep, which have marks then


class How(TypedDict, total=False):
    """How rows go into a table."""

    mode: str  # append, replace_by, or merge
    evolve: str  # add, or none
    key: Sequence[str] | str
    order: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch adds to a table, beside the list of its files."""

    name: str  # of the table
    schema: str = ""  # of the rows, as Delta's JSON
    stats: tuple[str, ...] = ()  # of each file, as Delta's JSON
    evolve: str = "add"
    mode: str = APPEND
    removes: tuple[str, ...] | None = None  # the files of a day that is made again
    nulls: tuple[str, ...] = ()  # columns without a value in some row
    key: tuple[str, ...] = ()  # of merge
    order: str = ""


def goal(name: str, where: str, by: Sequence[str], how: How) -> Goal:
    """Return what a job wants of a table; BadInput if it cannot be done here."""
    key = how.get("key", ())
    wanted = Goal(
        name=name,
        where=where,
        by=tuple(by),
        evolve=how.get("evolve", "add"),
        mode=how.get("mode", APPEND),
        key=(key,) if isinstance(key, str) else tuple(key),
        order=how.get("order", ""),
    )
    _demand(wanted)
    return wanted


def _demand(goal: Goal) -> None:
    if goal.evolve not in EVOLVE:
        raise BadInput(
            f"q.table: evolve={goal.evolve!r:.40} is neither 'add' nor 'none'"
        )
    if goal.mode not in _MODES:
        raise BadInput(
            f"q.table: mode={goal.mode!r:.40} is none of {', '.join(_MODES)}"
        )
    if goal.mode == REPLACE and not goal.by:
        raise BadInput(
            "q.table: replace_by replaces the files of the values of by: name columns, "
            'as in by="day"'
        )
    _demand_keys(goal)
    demand_installed()


def demand_installed() -> None:
    """Raise BadInput when what reads and writes tables is not installed."""
    if not is_installed():
        raise BadInput(MISSING)


def is_installed() -> bool:
    return importlib.util.find_spec("deltalake") is not None


def _demand_keys(goal: Goal) -> None:
    if goal.mode != MERGE:
        if goal.key or goal.order:
            raise BadInput('q.table: key and order are of mode="merge"')
        return
    if not goal.key:
        raise BadInput(
            "q.table: merge changes the rows that have the same key: name its columns, "
            'as in key="id"'
        )
    if goal.by:
        raise BadInput(
            'q.table: merge is for small tables, which no columns part: leave out "by", or '
            'use mode="replace_by"'
        )
    if goal.order in goal.key:
        raise BadInput(f"q.table: order={goal.order!r:.60} is a column of the key")
