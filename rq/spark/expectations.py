"""What a job promises of its data; what does not hold is an error and not a result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Protocol, TypedDict

from rq.errors import BadInput
from rq.spark import rules, schemas
from rq.spark.functions import F
from rq.words import visible
from rq.words.wording import several

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_SAMPLES = 3  # lines that a sentence quotes
_WIDTH = 120  # characters of each
_PATIENCE = 2.0  # seconds until Spark has told what an action that has ended counted
_LOOK = 0.02
LINES, REJECTED, MALFORMED = "lines", "rejected", "malformed"
REPLACED, RESCUED = "replaced", "rescued"
MALFORMED_MARK, _FITS = "_rq_malformed", "_rq_fits"  # columns beside lines


class Most(TypedDict, total=False):
    """Shares of the lines that were read, 0 to 1, of which no more may be so."""

    most_rejects: float
    most_replaced: float
    most_rescued: float


class Counts(Protocol):
    """Figures of rows, by name: `lines`, `replaced`, `rescued`, `rejected`, `malformed`."""

    def get(self) -> Mapping[str, int] | None:
        """Return them; None: nothing has read the rows."""


class Counted:
    """Figures of rows, which the first action of Spark that reads them counts on its
    way."""

    def __init__(self, rows: DataFrame, *figures: Column) -> None:
        from pyspark.sql import Observation

        self._observation = Observation()
        self._rows, self._figures = rows, figures
        self.observed = rows.observe(self._observation, *figures)

    def get(self) -> Row | None:
        """Return the figures; None: no action has read the rows."""
        if not self._is_there():
            return None
        row = self._observation._jo.future().value().get().get()
        if row.length():
            return self._observation.get
        # Nothing was left of them, so Spark has taken the rest out of its plan, and with
        # it what was counted.
        return self._rows.agg(*self._figures).collect()[0]

    def _is_there(self) -> bool:
        """Whether an action has counted; Spark tells it a moment after the action. `get`
        of the observation would wait for ever if there was none."""
        until = time.monotonic() + _PATIENCE
        while not self._observation._jo.future().isCompleted():
            if time.monotonic() > until:
                return False
            time.sleep(_LOOK)
        return True


@dataclass(frozen=True, slots=True)
class Parsed:
    """Lines that were parsed: the form, and those that do not fit; the first action of
    Spark on them counts them on its way."""

    form: str
    rejects: DataFrame
    counted: Counts
    most_rejects: float | None  # share of the lines; None: not all
    has_malformed: bool = False  # whether the form takes lines that are not whole

    def check(self, most_rejects: float | None = None) -> None:
        """Raise BadInput if too many lines did not fit: more than `most_rejects`, else
        than what the parsing was told. Nothing when none were read."""
        lines, rejected = self.counts()
        limit = self.most_rejects if most_rejects is None else most_rejects
        if rejected and (
            rejected == lines if limit is None else rejected > limit * lines
        ):
            self._refuse(lines, rejected, limit)

    def _refuse(self, lines: int, rejected: int, limit: float | None) -> None:
        rows = self.rejects.take(_SAMPLES)
        samples = "; ".join(repr(row["line"])[:_WIDTH] for row in rows)
        most = "" if limit is None else f", at most {limit:.0%} may"
        raise BadInput(
            f"{rejected:,} of {lines:,} lines do not fit {self.form!r}{most}: {samples}"
        )

    def counts(self) -> tuple[int, int]:
        """Return how many lines were read, and did not fit."""
        counts = self.counted.get()
        return (int(counts[LINES]), int(counts[REJECTED])) if counts else (0, 0)

    def malformed(self) -> int:
        """Return how many of those that fit are malformed."""
        counts = self.counted.get()
        return int(counts[MALFORMED]) if counts else 0


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of files, those that do not fit among them."""

    table: DataFrame
    counted: Counts
    most_rescued: float | None  # share of the rows; None: not all

    def check(self, most_rescued: float | None = None) -> None:
        """Raise BadInput if too many rows do not fit: more than `most_rescued`, else than
        what the reading was told. Nothing when none were read."""
        rows, rescued = count_of(self.counted), self.rescued()
        limit = self.most_rescued if most_rescued is None else most_rescued
        if not rescued or (
            rescued < rows if limit is None else rescued <= limit * rows
        ):
            return
        does_not_fit = F.col(schemas.RESCUED).isNotNull()
        samples = "; ".join(
            f"{row['file']} line {row[schemas.LINE]}: {row[schemas.RESCUED]!r:.{_WIDTH}}"
            for row in self.table.where(does_not_fit).take(_SAMPLES)
        )
        most = "" if limit is None else f", at most {limit:.0%} may"
        raise BadInput(
            f"{rescued:,} of {rows:,} rows do not fit their columns{most}: {samples}"
        )

    def rescued(self) -> int:
        """Return how many do not fit."""
        return count_of(self.counted, RESCUED)


def marked(lines: DataFrame, fits: Column, malformed: Column) -> Counted:
    """Count lines, those that do not fit, and those that are malformed, which fit as
    well; the observed ones have columns that say what they are."""
    from pyspark.sql import functions

    no = functions.lit(False)
    marks = {
        MALFORMED_MARK: functions.coalesce(malformed, no),
        _FITS: functions.coalesce(fits | malformed, no),
    }
    is_out = functions.when(~functions.col(_FITS), 1)
    is_malformed = functions.when(functions.col(MALFORMED_MARK), 1)
    return Counted(
        lines.withColumns(marks),
        _all_lines(),
        functions.count(is_out).alias(REJECTED),
        functions.count(is_malformed).alias(MALFORMED),
    )


def counted(rows: DataFrame) -> Counted:
    """Count lines, or rows of files, those that hold U+FFFD, and those that do not fit."""
    from pyspark.sql import functions

    no = functions.lit(False)
    holds = (
        functions.coalesce(functions.col(f"`{name}`").contains("\ufffd"), no)
        for name, kind in rows.dtypes
        if kind == schemas.STRING and name not in schemas.BEFORE
    )
    is_replaced = functions.when(reduce(lambda a, b: a | b, holds, no), 1)
    is_structured = schemas.RESCUED in rows.columns
    rescued = functions.col(schemas.RESCUED if is_structured else "line")
    is_rescued = functions.when(functions.lit(is_structured), rescued)
    return Counted(
        rows,
        _all_lines(),
        functions.count(is_replaced).alias(REPLACED),
        functions.count(is_rescued).alias(RESCUED),
    )


def _all_lines() -> Column:
    from pyspark.sql import functions

    return functions.count(functions.lit(1)).alias(LINES)


def count_of(counted: Counts, what: str = LINES) -> int:
    """Return how many lines an action has counted; 0 when there was none."""
    counts = counted.get()
    return int(counts[what]) if counts else 0


def check_replaced(read: Sequence[Counts], most: float) -> None:
    """Raise BadInput if of the lines that were read more than a share had bytes that are
    no text."""
    lines = sum(count_of(counted) for counted in read)
    replaced = sum(count_of(counted, REPLACED) for counted in read)
    if replaced > most * lines:
        raise BadInput(
            f"{replaced:,} of {lines:,} lines hold bytes that are neither UTF-8 nor "
            f"UTF-16, at most {most:.0%} may: convert the file (iconv), or let more be so"
        )


def fitting(marked: DataFrame) -> DataFrame:
    """Return those of marked lines that fit, with the mark of those that are malformed."""
    from pyspark.sql import functions

    return marked.where(functions.col(_FITS))


def rejected(marked: DataFrame) -> DataFrame:
    """Return those of marked lines that do not fit, without marks."""
    from pyspark.sql import functions

    return marked.where(~functions.col(_FITS)).drop(_FITS, MALFORMED_MARK)


def check(
    rows: DataFrame, least: int, not_null: Sequence[str], unique: Sequence[str]
) -> str:
    """Return what holds of a table, in words; BadInput says what does not, or that a
    column is missing. One pass over the table, and one more for `unique`."""
    rules.demand_columns("q.expect", [*not_null, *unique], rows)
    totals = _totals(rows, not_null)
    total = int(totals[LINES])
    if total < least:
        wanted = several(least, "row")
        raise BadInput(f"expected at least {wanted}, there are {total:,}")
    for name in not_null:
        if totals[f"null {name}"]:
            raise BadInput(
                f"expected no nulls in {visible.line(name)}, {totals[f'null {name}']:,} of {total:,} "
                "rows have one"
            )
    if unique:
        _check_unique(rows, unique)
    return _described(total, not_null, unique)


def _totals(rows: DataFrame, not_null: Sequence[str]) -> Row:
    nulls = (
        F.count(F.when(rules.not_null(name).is_broken(), 1)).alias(f"null {name}")
        for name in not_null
    )
    counted = F.count(F.lit(1)).alias(LINES)
    return rows.groupBy().agg(counted, *nulls).collect()[0]


def _check_unique(rows: DataFrame, unique: Sequence[str]) -> None:
    columns = [f"`{name}`" for name in unique]
    several = rows.groupBy(*columns).count().where("count > 1").take(1)
    if several:
        values = ", ".join(
            f"{visible.line(name)}={several[0][name]!r:.60}" for name in unique
        )
        raise BadInput(
            f"expected one row for each {visible.line(', '.join(unique))}, there are "
            f"{several[0]['count']:,} with {values}"
        )


def _described(total: int, not_null: Sequence[str], unique: Sequence[str]) -> str:
    parts = [several(total, "row")]
    if not_null:
        parts.append(f"no nulls in {', '.join(not_null)}")
    if unique:
        parts.append(f"one for each {', '.join(unique)}")
    return ", ".join(parts)
