"""`q.table_of`: rows of a Delta table that an engine filters, none of which is passed over."""

from __future__ import annotations

import pytest
from harness import delta_jobs
from harness.delta_jobs import add, call

ROWS = """
SELECT 1 AS n, true AS yes, '0.5'::DOUBLE AS share, 1.25::DECIMAL(38, 2) AS price,
    repeat('x', 50) AS line, 'a'::BLOB AS raw, DATE '2026-11-01' AS day
UNION ALL
SELECT 2, false, 'NaN'::DOUBLE, -99999999999999999999999999999999.99, 'y', NULL, NULL
UNION ALL
SELECT 3, NULL, -0.0, NULL, NULL, 'b'::BLOB, NULL
"""
WHERE = {
    "yes = true": [1],
    "yes = false": [2],
    "yes IS NULL": [3],
    "share = 0.5": [1],
    "share = 0": [3],
    "isnan(share)": [2],
    "share <= 0.5": [1, 3],
    "share > 0.6": [2],  # to both engines what is no number is the largest
    "share >= 0.5": [1, 2],
    "price = 1.25": [1],
    "price < 0": [2],
    "price IS NULL": [3],
    "line > 'xx'": [1, 2],
    "line = repeat('x', 50)": [1],
    "raw = 'b'::BLOB": [3],
    "day = DATE '2026-11-01'": [1],
    "day IS NULL": [2, 3],
    "day IS NULL AND n > 2": [3],
    "n BETWEEN 2 AND 3": [2, 3],
}


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


def read(duck_tables, where):
    def job(q):
        rows = q.table_of("flights").where(where).collect()
        seen.extend(sorted(row["n"] for row in rows))

    seen: list[int] = []
    call(duck_tables, job)
    return seen


@pytest.mark.parametrize("by", [(), ("day",), ("yes", "day"), ("line",)])
def test_a_filter_passes_over_no_row(duck_tables, by):
    add(duck_tables, ROWS, by=by)
    assert {where: read(duck_tables, where) for where in WHERE} == WHERE


def test_rows_that_came_before_a_column_have_none_in_it(duck_tables):
    add(duck_tables, "SELECT 1 AS n UNION ALL SELECT 2")
    add(duck_tables, "SELECT 3 AS n, 7 AS later UNION ALL SELECT 4, NULL")
    assert read(duck_tables, "later IS NULL") == [1, 2, 4]
    assert read(duck_tables, "later IS DISTINCT FROM 7") == [1, 2, 4]
    assert read(duck_tables, "later = 7") == [3]
