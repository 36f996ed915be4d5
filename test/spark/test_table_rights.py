"""Tables of another queue: read and written where their owner allows it, and nowhere else."""

from __future__ import annotations

import datetime
import json

import pytest
from deltalake import DeltaTable
from harness import delta_jobs
from harness.delta_jobs import add, call, rows

from rq import config
from rq import tables as rq_tables
from rq.config import checks
from rq.errors import BadInput, NotPermitted, Refused
from rq.scripts.pipe import Verb
from rq.spark import jobs, remote, table_care, writes

SHOP = "SELECT * FROM (VALUES (1, 'a', DATE '2026-01-02'), (2, NULL, DATE '2026-01-03')) AS t(n, v, day)"


@pytest.fixture(params=["duckdb", "spark"])
def tables(request, tmp_path, monkeypatch):
    """Give tables on each engine."""
    yield from delta_jobs.on_engine(request, tmp_path, monkeypatch)


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


def allow(*entries, owner="shop"):
    """Let a queue allow something."""
    path = config.find_root(None).queue(owner).config
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"script": "/bin/true", "spark": {"allow": list(entries)}}
    path.write_text(json.dumps(settings))


def seen(q, name, into):
    into += q.table_of(name).orderBy("n").collect()


def read(tables, name):
    """Return what a job of the queue logs reads of a table."""
    found = []
    call(tables, lambda q: seen(q, name, found), publish=False)
    return [tuple(row) for row in found]


def test_a_table_is_read_back_as_it_was_written(tables):
    add(tables, SHOP, by="day")
    add(
        tables,
        "SELECT 3 AS n, 'c' AS v, DATE '2026-01-03' AS day, 1.5 AS price",
        by="day",
    )
    back = read(tables, "flights")
    day = datetime.date
    assert [row[:1] for row in back] == [(1,), (2,), (3,)]
    names = DeltaTable(delta_jobs.place()).to_pyarrow_dataset().schema.names
    entries = [dict(zip(names, row, strict=True)) for row in back]
    assert [entry["v"] for entry in entries] == ["a", None, "c"]
    assert [entry["day"] for entry in entries] == [
        day(2026, 1, 2),
        day(2026, 1, 3),
        day(2026, 1, 3),
    ]
    assert [entry["price"] and float(entry["price"]) for entry in entries] == [
        None,
        None,
        1.5,
    ]
    assert read(tables, "logs/flights") == back


def test_rows_of_a_table_are_joined_and_written_elsewhere(tables):
    add(tables, "SELECT 1 AS n")

    def job(q):
        q.table(q.table_of("flights").where("n = 1"), "copies")

    call(tables, job)
    path = writes.tables("logs") / "copies"
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 1


def test_there_may_be_no_such_table(duck_tables):
    with pytest.raises(BadInput, match=r"q\.table_of: there is no table flights"):
        read(duck_tables, "flights")


READING = r"shop/orders is a table of the queue shop, and logs may not read it: shop allows it"
WRITING = r"and logs may not write it: .*\"allow\": \[\"logs writes orders\"\]"


@pytest.mark.parametrize(
    ("entries", "may_read", "may_write"),
    [
        ((), False, False),
        (("s3://lake/", "logs.internal"), False, False),
        (("logs reads orders",), True, False),
        (("logs writes orders",), True, True),
        (("* reads *",), True, False),
        (("other writes *", "logs writes others"), False, False),
        (("* writes orders",), True, True),
    ],
)
def test_the_owner_says_who_reaches_a_table(duck_tables, entries, may_read, may_write):
    allow("logs writes orders")
    write = lambda q: q.table(q.spark.sql("SELECT 1 AS n"), "shop/orders")  # noqa: E731
    call(duck_tables, write)
    allow(*entries)
    for may, sentence, act in (
        (may_read, READING, lambda: read(duck_tables, "shop/orders")),
        (may_write, WRITING, lambda: call(duck_tables, write)),
    ):
        if may:
            act()
        else:
            with pytest.raises(NotPermitted, match=sentence):
                act()
    path = writes.tables("shop") / "orders"
    assert DeltaTable(str(path)).version() == int(may_write)


def test_a_batch_that_may_not_is_err_and_waits_for_nothing(duck_tables):
    with pytest.raises(NotPermitted) as failed:
        read(duck_tables, "shop/orders")
    verb, why = jobs.verdict(failed.value)
    assert verb is Verb.ERR
    assert '"allow": ["logs reads orders"]' in why


@pytest.mark.parametrize("text", ["{", '{"spark": 7}', '{"script": "/bin/true"}'])
def test_an_owner_whose_config_cannot_be_read_allows_nothing(duck_tables, text):
    allow("* writes *")
    config.find_root(None).queue("shop").config.write_text(text)
    with pytest.raises(NotPermitted, match="may not read it"):
        read(duck_tables, "shop/orders")


@pytest.mark.parametrize(
    "name", ["../x", "shop/", "/orders", "a/b/c", "shop/1", "-a/b"]
)
def test_what_is_no_name_of_a_table_leads_nowhere(duck_tables, name):
    allow("* writes *")
    for act in (
        lambda q: q.table_of(name),
        lambda q: q.table(q.spark.sql("SELECT 1 AS n"), name),
        lambda q: q.contract(name, {}),
    ):
        with pytest.raises(BadInput, match="is no name of a table"):
            call(duck_tables, act)


def test_rows_for_another_queue_are_those_of_its_contract_too(duck_tables):
    allow("logs writes orders")

    def job(q):
        q.contract("shop/orders", {"n": {"least": 2}})
        q.table(q.spark.sql("SELECT unnest([1, 2]) AS n"), "shop/orders")

    call(duck_tables, job)
    for name in ("orders", "orders__rejected"):
        path = writes.tables("shop") / name
        assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 1


def test_a_table_is_one_table_however_it_is_named(duck_tables):
    def job(q):
        q.table(q.spark.sql("SELECT 1 AS n"), "logs/flights")
        q.table(q.spark.sql("SELECT 1 AS n"), "flights")

    with pytest.raises(BadInput, match="flights is written twice by this batch"):
        call(duck_tables, job)
    add(duck_tables, "SELECT 1 AS n")
    assert rows() == [1]


def test_files_of_another_queues_batch_are_not_removed(duck_tables):
    allow("logs writes orders")
    write = lambda q: q.table(q.spark.sql("SELECT 1 AS n"), "shop/orders")  # noqa: E731
    call(duck_tables, write)
    late = call(duck_tables, write, publish=False)
    late.writes.decide({})
    late.writes.close()
    path = writes.above("logs") / late.writes.key / "list.json"
    then = json.loads(path.read_text())
    path.write_text(json.dumps({**then, "time": then["time"] - 8 * 86400}))
    root = config.find_root(None)
    with pytest.raises(Refused, match="see `rq spark table held`"):
        table_care.vacuum(root, rq_tables.name("shop/orders"), 7 * 86400.0, dry=True)


@pytest.mark.parametrize(
    "entry", ["reports read orders", "reports reads", "a b c d", "../x reads y"]
)
def test_what_allow_cannot_mean_is_told_with_the_config(entry):
    with pytest.raises(ValueError, match="is neither a place nor says which queue"):
        checks._SPARK["allow"]([entry])


def test_places_and_tables_stand_side_by_side():
    entries = ["s3://lake/", "reports reads orders", "10.0.0.0/8"]
    assert checks._SPARK["allow"](entries) == tuple(entries)
    told = remote.texts({"RQ_SPARK_ALLOW": json.dumps(entries)})
    assert told == ["s3://lake/", "10.0.0.0/8"]
