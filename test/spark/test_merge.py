"""`q.table(mode="merge")`: rows that change those with the same key, each batch once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from harness import delta_jobs
from harness.delta_jobs import (
    add,
    begun,
    call,
    place,
    publish_at_once,
    rows,
)
from pyarrow import parquet

from rq.errors import BadInput, Busy
from rq.layout import Root
from rq.spark import (
    delta,
    delta_log,
    delta_merge,
    functions,
    sending,
    table_list,
    unfinished,
    writes,
)
from rq.spark import held as held_batches


@pytest.fixture(params=["duckdb", "spark"])
def tables(request, tmp_path, monkeypatch):
    """Give tables on each engine."""
    yield from delta_jobs.on_engine(request, tmp_path, monkeypatch)


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


MERGE = {"mode": "merge", "key": "n"}
ORDERED = {**MERGE, "order": "seq"}


def orders(*values, columns="n, state, seq"):
    """Return a query of some rows."""
    return f"SELECT * FROM (VALUES {', '.join(map(str, values))}) AS t({columns})"


def now(columns=("n", "state", "seq")):
    """Return what the table holds."""
    rows(columns[0])
    table = DeltaTable(place()).to_pyarrow_table().to_pylist()
    return sorted(tuple(row[name] for name in columns) for row in table)


def test_rows_change_those_with_the_same_key(tables):
    add(tables, orders((1, "new", 1), (2, "new", 1)), **MERGE)
    add(tables, orders((2, "paid", 2), (3, "new", 2)), **MERGE)
    assert now() == [(1, "new", 1), (2, "paid", 2), (3, "new", 2)]
    newest = DeltaTable(place()).history(1)[0]
    assert (newest["operation"], newest["rq_ids"]) == ("MERGE", ["m1"])
    add(tables, orders((4, "new", 2)))
    assert len(now()) == 4


def test_the_last_row_of_a_key_wins_by_a_column(tables):
    rows = [(1, "new", 1), (1, "sent", 3), (1, "paid", 2), (2, "new", 1)]
    add(tables, orders(*rows), **ORDERED)
    assert now() == [(1, "sent", 3), (2, "new", 1)]
    add(tables, orders((1, "late", 2), (2, "paid", 1)), **ORDERED)  # older; as old
    assert now() == [(1, "sent", 3), (2, "paid", 1)]


def test_a_row_without_an_order_is_older_than_all(duck_tables):
    without = "SELECT 1 AS n, '{}' AS state, NULL::INTEGER AS seq"
    add(duck_tables, without.format("new"), **ORDERED)
    add(duck_tables, orders((1, "paid", 1)), **ORDERED)
    add(duck_tables, without.format("lost"), **ORDERED)
    assert now() == [(1, "paid", 1)]


@pytest.mark.parametrize("key", ["Id", "ü", "select", 'a"b', "a.b", "it's", "a-b"])
def test_a_key_may_have_any_name(duck_tables, key):
    name = '"' + key.replace('"', '""') + '"'
    for text in ("a", "b"):
        query = f"SELECT 1 AS {name}, '{text}' AS v"
        add(duck_tables, query, mode="merge", key=[key], order="v")
    assert now([key, "v"]) == [(1, "b")]


def test_a_key_may_have_several_columns(tables):
    how = {"mode": "merge", "key": ["n", "seq"]}
    add(tables, orders((1, "a", 1), (1, "b", 2)), **how)
    add(tables, orders((1, "c", 2), (2, "d", 2)), **how)
    assert now() == [(1, "a", 1), (1, "c", 2), (2, "d", 2)]


# ---- what cannot be merged


def test_a_key_that_is_twice_in_a_batch_is_named(tables):
    add(tables, orders((1, "new", 1)), **MERGE)
    with pytest.raises(
        Exception, match="n is '7': several rows of this batch have this key"
    ):
        add(tables, orders((1, "a", 1), (7, "a", 1), (7, "b", 2)), **MERGE)
    with pytest.raises(
        Exception,
        match=r"n is '7': .* the same order: none is the last .*\.distinct\(\)",
    ):
        add(tables, orders((7, "a", 2), (7, "b", 2), (7, "c", 1)), **ORDERED)
    with pytest.raises(Exception, match="n is null: merge needs a key in each row"):
        add(tables, "SELECT CAST(NULL AS INT) AS n, 'a' AS state, 1 AS seq", **ORDERED)
    assert now() == [(1, "new", 1)]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"mode": "merge"}, "name its columns, as in key="),
        ({"key": "n"}, 'key and order are of mode="merge"'),
        ({"order": "n"}, 'key and order are of mode="merge"'),
        ({**MERGE, "by": "seq"}, 'leave out "by"'),
        ({**MERGE, "order": "n"}, "order='n' is a column of the key"),
        ({**MERGE, "order": "x"}, "there is no column 'x'"),
        ({"mode": "merge", "key": "x"}, "there is no column 'x'"),
        ({"mode": "merge", "key": "f"}, "f is double, and neither a key nor an order"),
        ({"mode": "merge", "key": "s"}, "s is struct<a: integer>, and neither"),
    ],
)
def test_what_cannot_be_merged_is_one_sentence(duck_tables, how, sentence):
    with pytest.raises(BadInput) as failed:
        add(
            duck_tables,
            "SELECT 1 AS n, 1 AS seq, 1.5::DOUBLE AS f, {'a': 1} AS s",
            **how,
        )
    assert sentence in str(failed.value)


@pytest.mark.parametrize("bound", ["MOST", "MOST_OF_BATCH"])
def test_what_is_too_large_to_be_merged_is_told_with_the_bound(
    duck_tables, monkeypatch, bound
):
    add(duck_tables, orders((1, "new", 1)), **MERGE)
    monkeypatch.setattr(delta_merge, bound, 100)
    with pytest.raises(
        BadInput, match=r"0 MiB, and merge (is for tables of|takes) 0 MiB at most"
    ):
        add(duck_tables, orders((1, "paid", 1)), **MERGE)
    assert now() == [(1, "new", 1)]


def test_columns_are_added_and_checked_as_when_rows_are_added(duck_tables):
    add(duck_tables, "SELECT 1 AS n", **MERGE)
    add(duck_tables, "SELECT 'x' AS v, 1 AS n UNION ALL SELECT 'y', 2", **MERGE)
    assert now(["n", "v"]) == [(1, "x"), (2, "y")]
    with pytest.raises(BadInput, match="n is integer in the table and string here"):
        add(duck_tables, "SELECT 'x' AS v, 'a' AS n", **MERGE)
    with pytest.raises(
        BadInput, match=r"the column v \(string\) of the table is missing"
    ):
        add(duck_tables, "SELECT 1 AS n", **MERGE)


# ---- under a contract


def kept(query, unique=(), **how):
    def job(q):
        q.contract("flights", {"state": {"one_of": ["new", "paid"]}}, unique=unique)
        q.table(q.spark.sql(query), "flights", **how)

    return job


def test_what_breaks_a_contract_changes_nothing(tables):
    call(tables, kept(orders((1, "new", 1), (2, "new", 1)), **ORDERED))
    call(tables, kept(orders((1, "odd", 2), (2, "odd", 2), (2, "paid", 3)), **ORDERED))
    assert now() == [(1, "new", 1), (2, "paid", 3)]
    beside = DeltaTable(place() + "__rejected").to_pyarrow_table().to_pylist()
    assert [json.loads(row["row"])["n"] for row in beside] == [1]


def test_keys_that_a_contract_has_once_are_rejected_and_end_no_batch(duck_tables):
    rows = [(1, "new", 1), (2, "new", 1), (2, "paid", 2)]
    call(duck_tables, kept(orders(*rows), unique="n", **MERGE))
    assert now() == [(1, "new", 1)]
    with pytest.raises(BadInput, match="n is '2': several rows"):
        call(duck_tables, kept(orders(*rows), **MERGE))


# ---- once


def again(late):
    """Finish a decision as the next start does that finds its note."""
    (writes.above("logs") / late.writes.key / "done").unlink(missing_ok=True)
    writes.finish("logs", late.writes.key)


def decided(duck_tables, query, **how):
    """Return the work of a batch that was killed behind its decision."""
    late = begun(duck_tables, query, **how)
    late.writes.decide(sending.origin("logs", "b1", late.messages))
    late.writes.close()
    return late


def test_a_batch_that_is_finished_again_changes_nothing(duck_tables, monkeypatch):
    add(duck_tables, orders((1, "new", 1)), **MERGE)
    late = decided(duck_tables, orders((1, "paid", 1)), **MERGE)
    monkeypatch.setattr(unfinished, "discard", lambda _: None)
    again(late)
    add(duck_tables, orders((1, "sent", 1)), **MERGE)
    again(late)
    assert now() == [(1, "sent", 1)]


def test_a_merge_that_changes_nothing_is_noted_as_well(duck_tables, monkeypatch):
    add(duck_tables, orders((1, "new", 5)), **ORDERED)
    late = decided(duck_tables, orders((1, "old", 1)), **ORDERED)
    monkeypatch.setattr(unfinished, "discard", lambda _: None)
    again(late)
    table = DeltaTable(place())
    table.delete()
    again(late)
    assert now() == []


def test_what_was_decided_first_is_merged_first(duck_tables):
    late = decided(duck_tables, orders((1, "new", 1)), **MERGE)
    add(duck_tables, orders((1, "paid", 2)), **MERGE)
    again(late)
    assert now() == [(1, "paid", 2)]
    held = decided(
        duck_tables, "SELECT 1 AS n, 'x' AS state, 'x' AS seq2, 3 AS seq", **MERGE
    )
    add(duck_tables, "SELECT 1 AS n, 'y' AS state, 7 AS seq2, 4 AS seq", **ORDERED)
    later = decided(
        duck_tables, "SELECT 1 AS n, 'z' AS state, 7 AS seq2, 4 AS seq", **MERGE
    )
    for late in (held, later):
        with pytest.raises(delta.Held):
            again(late)
    assert now() == [(1, "y", 4)]
    [why, _] = sorted(entry["why"] for entry in table_list.held(root()))
    assert f"an earlier one of logs, {held.writes.key}, is" in why
    held_batches.give_up("logs", "flights", held.writes.key)
    again(later)
    assert now() == [(1, "z", 4)]


def root():
    return Root(writes.tables("logs").parent.parent.parent)


def left_decided(tables, job, queue):
    """Return the work of a batch that is decided, and not in its tables yet."""
    late = call(tables, job, publish=False, queue=queue)
    late.writes.decide(sending.origin(queue, "b1", late.messages))
    late.writes.close()
    return late


def refuse_other(monkeypatch):
    """Let no commit come into the table `other`."""
    commit = delta.commit

    def without_rights(place, stage, named, plan, about):
        if plan.name == "other":
            raise BadInput("no rights")
        commit(place, stage, named, plan, about)

    monkeypatch.setattr(delta, "commit", without_rights)


def test_what_another_queue_has_decided_first_is_merged_first(duck_tables):
    job = delta_jobs.table_job(orders((1, "new", 1)), **MERGE)
    late = left_decided(duck_tables, job, "loader")
    add(duck_tables, orders((1, "paid", 2)), **MERGE)
    assert now() == [(1, "paid", 2)]
    writes.finish("loader", late.writes.key)
    assert now() == [(1, "paid", 2)]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_another_queue_cannot_finish_is_waited_for(
    duck_tables, monkeypatch, is_first
):
    tables = [("flights", orders((1, "new", 1))), ("other", "SELECT 2 AS n")]

    def both(q):
        for name, query in tables if is_first else reversed(tables):
            q.table(q.spark.sql(query), name, **MERGE)

    left_decided(duck_tables, both, "loader")
    refuse_other(monkeypatch)
    if is_first:  # and what it lacks is another table's
        add(duck_tables, orders((1, "paid", 2)), **MERGE)
        assert now() == [(1, "paid", 2)]
        return
    with pytest.raises(Busy, match="flights: an earlier batch of loader: no rights"):
        add(duck_tables, orders((1, "paid", 2)), **MERGE)


def test_what_the_own_queue_cannot_finish_elsewhere_fails_no_later_batch(
    duck_tables, monkeypatch
):
    def both(q):
        q.table(q.spark.sql(orders((1, "new", 1))), "flights", **MERGE)
        q.table(q.spark.sql("SELECT 2 AS n"), "other", **MERGE)

    left_decided(duck_tables, both, "logs")
    refuse_other(monkeypatch)
    add(duck_tables, orders((1, "paid", 2)), **MERGE)
    assert now() == [(1, "paid", 2)]


@pytest.mark.parametrize("data", ["{", "[]", '{"tables": 5, "time": 1}'])
def test_a_damaged_decision_is_named(duck_tables, data):
    path = writes.above("other") / ("0" * 24) / "list.json"
    path.parent.mkdir(parents=True)
    path.write_text(data)
    with pytest.raises(BadInput, match=f"{path} is damaged"):
        add(duck_tables, orders((1, "new", 1)), **MERGE)


@pytest.mark.parametrize("day", ["1960-01-01", "2026-01-01"])
def test_keys_that_differ_in_nanoseconds_alone_are_one(duck_tables, day):
    """A table keeps none."""
    query = (
        f"SELECT CAST('{day} 00:00:00.00000' || e AS TIMESTAMP_NS) AS n, CAST(e AS INT) AS seq "
        "FROM (VALUES ('1001'), ('1999'), ('2001')) AS t(e)"
    )
    with pytest.raises(BadInput, match="several rows of this batch have this key"):
        add(duck_tables, query, **MERGE)
    for _ in range(2):
        add(duck_tables, query, **ORDERED)
        assert rows("seq") == [1999, 2001]


def test_what_is_held_for_another_table_holds_up_none(duck_tables):
    def both(q):
        q.table(q.spark.sql(orders((1, "new", 1))), "flights", **MERGE)
        q.table(q.spark.sql("SELECT 'x' AS n"), "other", **MERGE)

    late = left_decided(duck_tables, both, "logs")
    call(duck_tables, lambda q: q.table(q.spark.sql("SELECT 1 AS n"), "other"))
    with pytest.raises(delta.Held):
        again(late)
    add(duck_tables, orders((1, "paid", 2)), **MERGE)
    assert now() == [(1, "paid", 2)]


def test_a_merge_whose_files_a_power_cut_has_torn_is_done_again(
    duck_tables, monkeypatch
):
    add(duck_tables, orders((1, "new", 1), (2, "new", 1)), **MERGE)
    late = decided(duck_tables, orders((1, "paid", 1)), **MERGE)
    monkeypatch.setattr(unfinished, "discard", lambda _: None)
    again(late)
    version = DeltaTable(place()).version()
    for uri in DeltaTable(place()).file_uris():
        path = Path(uri.removeprefix("file://"))
        path.write_bytes(b"\0" * path.stat().st_size)
    # Only files of the last commit are not on disk.
    log = Path(place(), "_delta_log", f"{version:020}.json")
    assert log.exists()
    again(late)
    assert now() == [(1, "paid", 1), (2, "new", 1)]
    table = DeltaTable(place())
    assert table.version() == version + 2  # what was before, and the merge again
    assert [v["operation"] for v in table.history(2)] == ["MERGE", "RESTORE"]


def torn_merge(duck_tables, monkeypatch):
    """Return the work of a batch whose merge is the last commit, and has torn files."""
    add(duck_tables, orders((1, "new", 1)), **MERGE)
    whole = {*DeltaTable(place()).file_uris()}
    late = decided(duck_tables, orders((2, "paid", 1)), **MERGE)
    monkeypatch.setattr(unfinished, "discard", lambda _: None)
    again(late)
    for uri in {*DeltaTable(place()).file_uris()} - whole:
        path = Path(uri.removeprefix("file://"))
        path.write_bytes(b"\0" * path.stat().st_size)
    return late


def test_a_commit_that_comes_before_a_torn_merge_is_undone_stays(
    duck_tables, monkeypatch
):
    late, is_of = torn_merge(duck_tables, monkeypatch), delta_log.is_of

    def between(*args):
        names = pa.schema(DeltaTable(place()).schema().to_arrow())
        row = {"n": [3], "state": ["x"], "seq": [1]}
        write_deltalake(place(), pa.table(row).cast(names), mode="append")
        return is_of(*args)

    monkeypatch.setattr(delta_log, "is_of", between)
    with pytest.raises(delta.Held, match="others have written to it since"):
        again(late)
    numbers = sorted(int(p.stem) for p in Path(place(), "_delta_log").glob("*.json"))
    assert numbers == list(range(len(numbers)))
    assert DeltaTable(place()).history(1)[0]["operation"] == "WRITE"  # theirs


def test_a_torn_merge_that_was_undone_before_a_kill_is_done_again(
    duck_tables, monkeypatch
):
    late = torn_merge(duck_tables, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(delta, "_committed", None)
        with pytest.raises(TypeError):
            again(late)
    assert now() == [(1, "new", 1)]
    again(late)
    again(late)
    assert now() == [(1, "new", 1), (2, "paid", 1)]


def test_a_torn_merge_takes_no_commit_of_others_away(duck_tables, monkeypatch):
    add(duck_tables, orders((1, "new", 1)), **MERGE)
    late = decided(duck_tables, orders((2, "paid", 1)), **MERGE)
    monkeypatch.setattr(unfinished, "discard", lambda _: None)
    again(late)
    torn = {*DeltaTable(place()).file_uris()}
    add(duck_tables, orders((3, "new", 1)))  # of another queue, as one
    for uri in torn:
        path = Path(uri.removeprefix("file://"))
        path.write_bytes(b"\0" * path.stat().st_size)
    with pytest.raises(delta.Held, match="others have written to it since"):
        again(late)
    [left] = {*DeltaTable(place()).file_uris()} - torn
    assert parquet.read_table(left.removeprefix("file://"))["n"].to_pylist() == [3]


@pytest.mark.parametrize(
    "name", ["_rq_place", "_RQ_Breaks", "_rq_key_times", "__delta_rs_source"]
)
def test_a_column_of_rqs_own_name_is_refused_and_costs_no_row(duck_tables, name):
    query = f"SELECT 1 AS n, 2 AS seq, 3 AS {name}"
    with pytest.raises(BadInput, match="is RQ's own: rename it"):
        add(duck_tables, query, **ORDERED)


def test_what_is_said_of_a_merge_and_not_known_is_refused(duck_tables):
    with pytest.raises(
        BadInput, match="'ordre' is not known; these are: table, name, by, mode"
    ):
        add(duck_tables, orders((1, "new", 1)), **MERGE, ordre="seq")


def test_files_that_a_merge_has_written_outlast_a_power_cut(duck_tables, monkeypatch):
    synced, sync = set(), delta_merge.files.sync

    def noted(path):
        synced.add(str(path))
        sync(path)

    monkeypatch.setattr(delta_merge.files, "sync", noted)
    for state in ("new", "paid"):
        add(duck_tables, orders((1, state, 1)), **MERGE)
        table = DeltaTable(place())
        assert {uri.removeprefix("file://") for uri in table.file_uris()} <= synced
        assert f"{place()}/_delta_log/{table.version():020}.json" in synced


@pytest.mark.parametrize("is_there", [True, False])
def test_many_that_merge_and_add_at_once_lose_nothing(duck_tables, is_there):
    if is_there:
        add(duck_tables, orders((1, "new", 0)), **ORDERED)
    late = [
        begun(duck_tables, orders((1, "a", n), (n + 10, "a", n)), **ORDERED)
        for n in range(1, 5)
    ]
    late += [begun(duck_tables, orders((n + 100, "b", n))) for n in range(4)]
    assert publish_at_once(late) == []
    merged = [(n + 10, "a", n) for n in range(1, 5)]
    assert now() == [(1, "a", 4), *merged, *((n + 100, "b", n) for n in range(4))]


def test_both_engines_merge_into_one_table(spark, duck_tables):
    add(duck_tables, orders((1, "new", 1), (2, "new", 1)), **ORDERED)
    functions.F.use(functions.SPARK)
    add(delta_jobs.SparkTables(spark), orders((1, "paid", 2), (3, "new", 1)), **ORDERED)
    assert now() == [(1, "paid", 2), (2, "new", 1), (3, "new", 1)]
