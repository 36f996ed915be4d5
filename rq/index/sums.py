"""Sums of attempts by the hour in which they ended, so that a night is not counted by rows.

What is true at all times

- A row of `sums` is changed in the transaction that changes rows of `runs`: `runs` and
  `failed` are what counting those of its queue and hour would give.
- `first`, `last` and `longest` are bounds: none of them started before or after, or ran
  longer. Attempts that leave do not move them. So an hour counts as whole, or not at all,
  only if it does by its bounds; of any other one the rows are counted, and the attempt that
  ran longest is always read from its row.

So a sum over a span is that of its rows, however hours and the span lie, also where the clock
was set back in between."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from rq.index.schema import Cell, SqlRow

HOUR = 3_600_000_000  # µs

_ADD = """
INSERT INTO sums VALUES (?, ?, 1, ?, ?, ?, ?)
ON CONFLICT (queue, hour) DO UPDATE SET
    runs = runs + 1, failed = failed + excluded.failed,
    first = min(first, excluded.first), last = max(last, excluded.last),
    longest = max(longest, excluded.longest)"""
_HOURS = f"""
FROM sums WHERE queue IN (SELECT value FROM json_each(:queues))
AND hour >= :since / {HOUR} AND first <= :until"""
_IS_WHOLE = f"(hour * {HOUR} >= :since AND last <= :until)"
_EDGE = """
SELECT count(*), total(outcome = 'err'), max(ran), id FROM runs INDEXED BY run_ended
WHERE ended >= ? AND ended < ? AND started <= ?
AND queue IN (SELECT value FROM json_each(?))"""
_LONGEST = """
SELECT ran, id FROM runs INDEXED BY run_of_queue
WHERE queue = ? AND ended >= ? AND ended < ? ORDER BY ran DESC LIMIT 1"""
_AT_WORK = """
SELECT count(*), 0, max(max(:now - started, 0)), -id FROM messages INDEXED BY running
WHERE state = 'run' AND started <= :until
AND queue IN (SELECT value FROM json_each(:queues))"""


class Ended(NamedTuple):
    """What the sums take of an attempt."""

    queue: int
    started: int
    ended: int
    ran: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Total:
    """What attempts come to. `row`: the id of the one that ran longest; below 0, that of
    the message that is at work."""

    runs: int
    failed: int
    longest: int | None
    row: int | None

    def and_also(self, row: SqlRow) -> Total:
        """Add what a statement has counted."""
        runs, failed, longest, number = row
        both = Total(
            self.runs + int(runs), self.failed + int(failed), self.longest, self.row
        )
        if longest is None or (self.longest is not None and self.longest >= longest):
            return both
        return replace(both, longest=longest, row=number)


NOTHING = Total(0, 0, None, None)


# ---- writing them, in the transaction that is open


def add(base: sqlite3.Connection, attempts: Iterable[Ended]) -> None:
    """Add attempts that have ended."""
    base.executemany(
        _ADD,
        [
            (
                *(at.queue, at.ended // HOUR, at.outcome == "err"),
                *(at.started, at.started, at.ran),
            )
            for at in attempts
        ],
    )


def remove_runs(
    base: sqlite3.Connection, condition: str, values: Sequence[Cell]
) -> int:
    """Remove the rows of `runs` that a condition names; return how many."""
    gone = base.execute(
        f"SELECT count(*), total(outcome = 'err'), queue, ended / {HOUR} FROM runs "
        f"WHERE {condition} GROUP BY 3, 4",
        values,
    ).fetchall()
    base.executemany(
        "UPDATE sums SET runs = runs - ?, failed = failed - ? "
        "WHERE queue = ? AND hour = ?",
        gone,
    )
    base.executemany(
        "DELETE FROM sums WHERE queue = ? AND hour = ? AND runs = 0",
        [row[2:] for row in gone],
    )
    base.execute(f"DELETE FROM runs WHERE {condition}", values)
    return sum(row[0] for row in gone)


# ---- reading them

Values = Mapping[str, SqlRow]  # since, until, now (µs) and queues (numbers, as JSON)
LOWEST = -(1 << 62)  # µs: before all


def of_span(base: sqlite3.Connection, values: Values) -> Total:
    """Return the sums of what was at work in a span."""
    sql = f"SELECT total(runs), total(failed), NULL, NULL {_HOURS} AND {_IS_WHOLE}"
    total = NOTHING.and_also(base.execute(sql, values).fetchone())
    total = total.and_also(base.execute(_AT_WORK, values).fetchone())
    for hour, queues in _edges(base, values):
        begun = max(hour * HOUR, values["since"])
        edge = (
            begun,
            (hour + 1) * HOUR,
            values["until"],
            orjson.dumps(queues).decode(),
        )
        total = total.and_also(base.execute(_EDGE, edge).fetchone())
    return _with_longest(base, values, total)


def end(base: sqlite3.Connection, values: Values) -> int:
    """Return a moment before which all attempts have ended that began before `until`."""
    hour = base.execute(f"SELECT max(hour) {_HOURS}", values).fetchone()[0]
    return 0 if hour is None else (int(hour) + 1) * HOUR


def newest(base: sqlite3.Connection, values: Values, number: int) -> dict[str, int]:
    """Return `since` and `floor` between which and `until` so many attempts began: so the
    newest ones of the span did, too."""
    sql = f"SELECT first, runs {_HOURS} AND {_IS_WHOLE} ORDER BY first DESC"
    for first, runs in base.execute(sql, values):
        number -= runs
        if number <= 0:
            floor = {**values, "floor": first}
            sql = f"SELECT min(hour) {_HOURS} AND last >= :floor"
            hour = int(base.execute(sql, floor).fetchone()[0])
            return {"floor": first, "since": max(values["since"], hour * HOUR)}
    return {}


def _edges(base: sqlite3.Connection, values: Values) -> Iterator[tuple[int, list[int]]]:
    """Give the hours of which rows are counted, with the queues of that hour."""
    by_hour: dict[int, list[int]] = {}
    rows = base.execute(f"SELECT hour, queue {_HOURS} AND NOT {_IS_WHOLE}", values)
    for hour, queue in rows:
        by_hour.setdefault(hour, []).append(queue)
    yield from by_hour.items()


def _with_longest(base: sqlite3.Connection, values: Values, total: Total) -> Total:
    """Look in whole hours, that with the highest bound first, for what ran longest."""
    rows = base.execute(
        f"SELECT longest, queue, hour {_HOURS} AND {_IS_WHOLE} ORDER BY longest DESC",
        values,
    )
    for most, queue, hour in rows:
        if total.longest is not None and total.longest >= most:
            break
        span = (queue, hour * HOUR, (hour + 1) * HOUR)
        total = total.and_also((0, 0, *base.execute(_LONGEST, span).fetchone()))
    return total


@contextlib.contextmanager
def moment(base: sqlite3.Connection) -> Iterator[None]:
    """Let all that is read within be of one moment: a batch may be written meanwhile."""
    base.execute("BEGIN")
    try:
        yield
    finally:
        base.execute("ROLLBACK")
