"""`q.contract`: rows that break one are in a table of their own, and in no other."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from harness import delta_jobs
from harness.delta_jobs import add, begun, call, place, publish_all, rows

from rq.errors import BadInput
from rq.spark import delta, functions, rules, writes

ORDERS = """
SELECT * FROM (VALUES
(1, 'paid', 10.0, DATE '2026-01-02'),
(2, 'paid', -1.0, DATE '2026-01-02'),
(3, 'lost', 11.0, DATE '2026-01-02'),
(4, NULL, 12.0, DATE '2026-01-03'),
(5, 'sent', NULL, DATE '2026-01-03'),
(6, 'sent', 13.0, DATE '1999-01-03'),
(7, 'sent', 14.0, DATE '2026-01-03'),
(7, 'paid', 15.0, DATE '2026-01-04'),
(NULL, 'paid', 16.0, DATE '2026-01-04'))
AS t(n, state, price, day)
"""
COLUMNS = {
    "n": "int",
    "state": {"type": "string", "not_null": True, "one_of": ["paid", "sent"]},
    "price": {"least": 0},
    "day": {"least": "2020-01-01", "most": datetime.date(2030, 1, 1)},
}


@pytest.fixture(params=["duckdb", "spark"])
def tables(request, tmp_path, monkeypatch):
    """Give tables on each engine."""
    yield from delta_jobs.on_engine(request, tmp_path, monkeypatch)


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


def stated(columns=COLUMNS, query=ORDERS, by=(), **how):
    """Return a job that writes rows under a contract."""

    def job(q):
        q.contract("flights", columns, **how)
        q.table(q.spark.sql(query), "flights", by=by)

    return job


def broken():
    """Return what was rejected, and why."""
    found = DeltaTable(place() + "__rejected").to_pyarrow_table().to_pylist()
    return sorted((row["column"], row["rule"], row["value"] or "") for row in found)


@pytest.mark.parametrize("by", [(), "day"])
def test_rows_that_break_it_are_beside_the_table_with_the_reason(tables, by):
    q = call(tables, stated(by=by, unique="n"))
    assert rows() == [1, 5]
    assert broken() == [
        ("day", "at least 2020-01-01 and at most 2030-01-01", "1999-01-03"),
        ("n", "not null", ""),
        ("n", "unique", "7"),
        ("n", "unique", "7"),
        ("price", "at least 0", "-1.0"),
        ("state", "not null", ""),
        ("state", "one of paid, sent", "lost"),
    ]
    beside = DeltaTable(place() + "__rejected").to_pyarrow_table().to_pylist()
    kept = {row["value"]: json.loads(row["row"]) for row in beside}["lost"]
    whole = {"n": 3, "state": "lost", "price": "11.0", "day": "2026-01-02"}
    assert kept == whole
    assert {row["batch"] for row in beside} == {"b1"}
    figures = json.loads(q.figures([]))
    assert figures["rejected"] == 7
    assert figures["outputs"] == {"flights": 2, "flights__rejected": 7}
    # Of a job that has failed these rows are in no table.
    failed = json.loads(q.figures(None))
    assert failed["discarded"] == {"flights": 2, "flights__rejected": 7}
    assert not failed.keys() & {"outputs", "rows_out"}


def test_both_engines_reject_the_same_rows(spark, duck_tables):
    query = """SELECT * FROM (VALUES ('ä', 1.5, true), ('z', 1e300, false),
        ('A', CAST('NaN' AS DOUBLE), NULL), ('', -0.0, true),
        ('b', 1.0, NULL)) AS t(n, x, ok)"""
    columns = {
        "n": {"least": "A", "most": "z"},
        "x": {"least": 0, "most": 2.5},
        "ok": {"one_of": [True]},
    }
    call(duck_tables, stated(columns, query))
    on_duckdb = broken()
    functions.F.use(functions.SPARK)
    call(delta_jobs.SparkTables(spark), stated(columns, query))
    assert broken() == sorted(on_duckdb * 2)
    assert rows() == ["b", "b"]


def test_what_keeps_it_makes_no_other_table(duck_tables):
    q = call(
        duck_tables,
        stated(
            query="SELECT 1 AS n, 'paid' AS state, 2.0 AS price, "
            "DATE '2026-01-01' AS day",
            most_rejects=0,
        ),
    )
    assert rows() == [1]
    assert delta.load(place() + "__rejected") is None
    assert json.loads(q.figures([]))["rejected"] == 0


@pytest.mark.parametrize(
    ("most", "ends"), [(None, False), (0.8, False), (0.5, True), (0, True)]
)
def test_too_many_end_the_batch(duck_tables, most, ends):
    job = stated(unique="n", most_rejects=most)
    if not ends:
        call(duck_tables, job)
        assert rows() == [1, 5]
        return
    with pytest.raises(BadInput) as failed:
        call(duck_tables, job)
    text = f"flights: 7 of 9 rows break the contract, at most {most:.0%} may: "
    assert str(failed.value).startswith(
        f"q.contract: {text}price is '-1.0': at least 0; "
    )
    assert "first in" not in str(failed.value)  # a file that no reader ever sees
    assert delta.load(place()) is None
    assert [path for path in writes.above("logs").iterdir() if path.is_dir()] == []
    for each in (place(), place() + "__rejected"):
        assert [path for path in Path(each).rglob("*") if path.is_file()] == []


def test_if_all_rows_break_it_the_batch_has_failed(duck_tables):
    with pytest.raises(BadInput, match=r"2 of 2 rows break the contract: n is '1': at"):
        call(duck_tables, stated({"n": {"least": 3}}, "SELECT unnest([1, 2]) AS n"))


def test_a_batch_that_is_finished_late_has_its_rows_in_both_once(duck_tables):
    call(duck_tables, stated(unique="n"))
    late = call(duck_tables, stated(unique="n"), publish=False)
    publish_all(late)
    (writes.above("logs") / late.writes.key / "done").unlink()
    writes.finish("logs", late.writes.key)
    assert rows() == [1, 1, 5, 5]
    assert len(broken()) == 14


# ---- what cannot be stated


@pytest.mark.parametrize(
    ("columns", "how", "sentence"),
    [
        (
            {"n": "string"},
            {},
            "flights: the column n is integer here, the contract says string",
        ),
        ({"n": "text not null"}, {}, "n is integer here, the contract says string"),
        ({"n": "rope"}, {}, "'rope' is no type"),
        ({"x": "int"}, {}, "there is no column 'x'; there are n"),
        ({}, {"unique": ["n", "y"]}, "there is no column 'y'"),
        (
            {"n": {"between": 3}},
            {},
            "'n': 'between' is not known; these are: type, not_null, least",
        ),
        ({"n": {"least": "a"}}, {}, "n is integer, and least says 'a': say a value"),
        ({"n": {"one_of": [1, None]}}, {}, "n is integer, and one_of says None"),
        ({"n": {"one_of": []}}, {}, "one_of=[] is not a list of values"),
        ({"n": {"one_of": "abc"}}, {}, "one_of='abc' is not a list of values"),
        ({"n": {"most": True}}, {}, "n is integer, and most says True"),
        ({}, {"most_rejects": 2}, "most_rejects=2 is not 0 to 1"),
    ],
)
def test_what_cannot_be_promised_is_refused(duck_tables, columns, how, sentence):
    with pytest.raises(BadInput) as failed:
        call(duck_tables, stated(columns, "SELECT 1 AS n", **how))
    assert sentence in str(failed.value)
    assert delta.load(place()) is None


@pytest.mark.parametrize("name", ["a" * 55, "a/b/c"])
def test_a_name_without_room_for_the_other_table_is_refused(duck_tables, name):
    with pytest.raises(BadInput, match=r"too long for the name|is no name of a table"):
        call(duck_tables, lambda q: q.contract(name, {}))


def test_a_contract_of_no_table_is_told(duck_tables):
    def job(q):
        q.contract("fligths", {"n": "int"})
        q.table(q.spark.sql("SELECT 1 AS n"), "flights")

    with pytest.raises(BadInput, match=r"fligths: no q\.table of that name follows"):
        call(duck_tables, job)


def test_values_are_of_the_type_of_their_column():
    midnight = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert rules.value("timestamp", "2026-01-02") == midnight
    assert str(rules.value("decimal(4,2)", "1.50")) == "1.50"
    for kind, wrong in [("date", "x"), ("decimal(4,2)", "x"), ("struct<a: int>", 1)]:
        with pytest.raises(ValueError, match=r"^$|isoformat"):
            rules.value(kind, wrong)


# ---- nulls where a table has none


ONE = "SELECT 8 AS n, {} AS state, 12.5 AS price, DATE '2026-01-02' AS day"


def test_a_table_that_a_contract_makes_says_what_is_never_null(tables):
    call(tables, stated(unique="n"))
    fields = DeltaTable(place()).schema().fields
    assert {f.name for f in fields if not f.nullable} == {"n", "state"}
    add(tables, ONE.format("'x'"))
    assert rows() == [1, 5, 8]
    sentence = "the column state has a value in each row of the table, "
    with pytest.raises(BadInput, match=sentence):
        add(tables, ONE.format("CAST(NULL AS VARCHAR(9))"))
    assert rows() == [1, 5, 8]


NESTED = "STRUCT(a INTEGER)"


@pytest.mark.parametrize(
    ("by", "query"),
    [
        (
            [],
            "SELECT 1 AS n, 'a' AS v, {'a': 1} AS s UNION ALL SELECT NULL, 'a', {'a': 1}",
        ),
        (
            [],
            f"SELECT 1 AS n, 'a' AS v, {{'a': 1}} AS s UNION ALL SELECT 2, 'a', NULL::{NESTED}",
        ),
        (["v"], "SELECT 1 AS n, NULL::VARCHAR AS v, {'a': 1} AS s"),
    ],
)
def test_nulls_that_a_table_of_others_forbids_are_refused(duck_tables, by, query):
    add(duck_tables, "SELECT 1 AS n, 'a' AS v, {'a': 1} AS s", by=by)
    forbid("n", "v", "s")
    with pytest.raises(BadInput, match="has a value in each row of the table, "):
        add(duck_tables, query, by=by)
    add(duck_tables, "SELECT 2 AS n, 'a' AS v, {'a': NULL::INTEGER} AS s", by=by)
    assert rows() == [1, 2]


def forbid(*names):
    """Let a table say of columns that they are never null, as other writers do."""
    log = Path(place(), "_delta_log", f"{0:020}.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in filter(lambda line: "metaData" in line, lines):
        schema = Schema.from_json(line["metaData"]["schemaString"])
        changed = [Field(f.name, f.type, f.name not in names) for f in schema.fields]
        line["metaData"]["schemaString"] = Schema(changed).to_json()
    log.write_text("\n".join(map(json.dumps, lines)))
    os.utime(log)


def test_a_table_that_forbids_nulls_meanwhile_holds_the_batch(duck_tables):
    late = begun(duck_tables, "SELECT NULL::INTEGER AS n")
    lacking = begun(duck_tables, "SELECT 1 AS n")
    lacking.writes.decide({})
    add(duck_tables, "SELECT 1 AS n")
    forbid("n")
    with pytest.raises(delta.Held, match="n has a value in each row of the table"):
        publish_all(late)
    lacking.writes.publish()
    assert rows() == [1, 1]


def test_a_contract_may_promise_nothing(tables):
    call(tables, stated({}, "SELECT 1 AS n"))
    assert rows() == [1]
