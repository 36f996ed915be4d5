"""`q.table`: Delta tables, each batch in one once, and read by others."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import time
from pathlib import Path

import polars
import pytest
from deltalake import DeltaTable
from harness import delta_jobs
from harness.delta_jobs import (
    add,
    begun,
    call,
    place,
    publish_all,
    publish_at_once,
    rows,
)
from harness.delta_kills import POINTS, kill_at_each
from harness.spark_jobs import HEAD
from pyarrow import dataset

from rq import tables as rq_tables
from rq.cli import spark as cli
from rq.errors import BadInput, Refused
from rq.layout import Root
from rq.spark import (
    delta,
    delta_log,
    delta_schemas,
    functions,
    sending,
    table_list,
    trial,
    writes,
)
from rq.spark.spark_tables import SparkTables
from rq.tables import LOG, Name


@pytest.fixture(params=["duckdb", "spark"])
def tables(request, tmp_path, monkeypatch):
    """Give tables on each engine."""
    yield from delta_jobs.on_engine(request, tmp_path, monkeypatch)


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


ROWS = """
SELECT * FROM (VALUES
(1, 'a', DATE '2026-01-02', TIMESTAMP '2026-01-02 03:04:05.123456', 1.5, true),
(2, 'b', DATE '2026-01-02', NULL, 2.5, false),
(3, NULL, DATE '2026-01-03', TIMESTAMP '2026-01-03 00:00:00', 3.5, NULL))
AS t(n, host, day, seen, price, ok)
"""


def test_rows_are_added_and_seen_by_independent_readers(tables):
    def job(q):
        q.table(q.spark.sql(ROWS), "flights")
        assert not Path(place(), "_delta_log").exists()

    figures = json.loads(call(tables, job).figures([]))
    assert figures["outputs"] == {"flights": 3}
    add(tables, ROWS)
    assert rows() == [1, 1, 2, 2, 3, 3]
    table = DeltaTable(place())
    assert table.version() == 1
    assert delta_schemas.columns(table.schema().to_json()) == {
        "n": "integer",
        "host": "string",
        "day": "date",
        "seen": "timestamp",
        "price": "decimal(2,1)",
        "ok": "boolean",
    }
    newest = table.history(1)[0]
    assert (newest["rq_queue"], newest["rq_ids"]) == ("logs", ["m1"])


def test_both_engines_write_into_one_table(spark, duck_tables, monkeypatch):
    add(duck_tables, ROWS)
    functions.F.use(functions.SPARK)
    add(SparkTables(spark), ROWS)
    assert rows() == [1, 1, 2, 2, 3, 3]
    table = DeltaTable(place()).to_pyarrow_table().to_pylist()
    assert len({json.dumps(row, default=str) for row in table}) == 3


def test_what_the_log_says_of_files_hides_no_row(duck_tables):
    add(duck_tables, ROWS, by=["day"])
    midnight = datetime.datetime(2026, 1, 3, tzinfo=datetime.UTC)
    for wanted in (
        polars.col("n") > 2,
        polars.col("host").is_null(),
        polars.col("day") >= datetime.date(2026, 1, 3),
        polars.col("seen") >= midnight,
    ):
        found = polars.scan_delta(place()).filter(wanted).collect()
        assert found["n"].to_list() == [3]
    noon = polars.col("seen") > datetime.datetime(
        2026, 1, 2, 3, 4, 5, 123450, datetime.UTC
    )
    assert polars.scan_delta(place()).filter(noon).collect().height == 2


def test_a_table_is_parted_by_columns(tables):
    for _ in range(2):
        add(tables, ROWS, by=["day", "host"])
    assert rows("host") == [None, None, "a", "a", "b", "b"]
    table = DeltaTable(place())
    assert table.metadata().partition_columns == ["day", "host"]
    only = table.to_pyarrow_table(filters=[("day", "=", datetime.date(2026, 1, 3))])
    assert only.column("n").to_pylist() == [3, 3]


def test_values_come_back_from_directories_as_they_were(tables):
    odd = ["a/b", "..", "a=b", "ü +", "50%", 'q"', "x:y?*[z]^{}", "#", " s ", ""]
    values = ", ".join(f"({n}, '{text}')" for n, text in enumerate(odd))
    add(tables, f"SELECT * FROM (VALUES {values}) AS t(n, v)", by="v")
    assert rows("v") == sorted([text or None for text in odd], key=str)


# ---- what does not fit


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
@pytest.mark.parametrize("text", ["infinity", "20000-01-01", "0044-03-15 (BC)"])
def test_days_that_readers_cannot_open_end_a_batch_with_a_sentence(
    duck_tables, kind, text
):
    query = f"SELECT * FROM (VALUES (1, {kind} '{text}'), (2, NULL)) AS t(n, day)"
    for how in ({}, {"mode": "merge", "key": "n"}):
        with pytest.raises(BadInput, match="day has a date or time that is not of the"):
            add(duck_tables, query, **how)

    def rejecting(q):
        q.contract("flights", {"n": {"least": 2}})
        q.table(q.spark.sql(query), "flights")

    with pytest.raises(BadInput, match="breaks it has a date or time that is not of"):
        call(duck_tables, rejecting)
    assert delta.load(place()) is None


@pytest.mark.parametrize(
    ("query", "how", "sentence"),
    [
        (
            "SELECT 'x' AS n, 1 AS m",
            {},
            "the column n is integer in the table and string",
        ),
        ("SELECT 1 AS n", {}, "the column m (integer) of the table is missing here"),
        (
            "SELECT 1 AS n, 1 AS M, 1 AS m2",
            {},
            "the column M is m in the table: rename it",
        ),
        (
            "SELECT 1 AS n, 1 AS m, 2.5::DOUBLE AS x",
            {"evolve": "none"},
            "the table has no column x (double)",
        ),
        ("SELECT 1 AS n, 1 AS m", {"by": "m"}, "parted by nothing, these rows by m"),
        ("SELECT 1 AS n, 1 AS m", {"evolve": "all"}, "is neither 'add' nor 'none'"),
        (
            'SELECT 1 AS n, 1 AS m, 2 AS "a b"',
            {},
            "'a b' has a name that tables cannot",
        ),
        ("SELECT 1 AS n, 1 AS m, TIME '03:04:05' AS x", {}, "x is of type time64[us]"),
        ("SELECT 1 AS n, 1 AS m, INTERVAL 1 DAY AS x", {}, "which tables do not have"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_anything_is_seen(
    duck_tables, query, how, sentence
):
    add(duck_tables, "SELECT 1 AS n, 2 AS m")
    with pytest.raises(BadInput) as failed:
        add(duck_tables, query, **how)
    assert sentence in str(failed.value)
    assert rows() == [1]
    assert DeltaTable(place()).version() == 0
    assert files_in(place()) == DeltaTable(place()).file_uris()


def files_in(place):
    return [
        str(path)
        for path in Path(place).rglob("*")
        if path.is_file() and "_delta_log" not in path.parts
    ]


def test_a_refusal_names_where_the_first_rows_lie(duck_tables):
    add(duck_tables, "SELECT 1 AS n, 'a' AS v", by="v")
    with pytest.raises(BadInput, match=r"string here: cast it \(first in v=a\)"):
        add(duck_tables, "SELECT 'x' AS n, 'a' AS v", by="v")


def test_a_refusal_of_a_table_that_nothing_parts_names_no_file(duck_tables):
    add(duck_tables, "SELECT 1 AS n")
    with pytest.raises(BadInput, match=r"string here: cast it$"):
        add(duck_tables, "SELECT 'x' AS n")


@pytest.mark.parametrize("name", ["", "a/b/c", "../x", "1a", "a-b", "ü", "a" * 65])
def test_a_name_of_a_table_leads_nowhere_else(duck_tables, name):
    with pytest.raises(BadInput, match="is no name of a table"):
        call(duck_tables, lambda q: q.table(q.spark.sql("SELECT 1 AS n"), name))


def test_a_table_is_written_once_by_a_batch(duck_tables):
    def job(q):
        for _ in range(2):
            q.table(q.spark.sql("SELECT 1 AS n"), "flights")

    with pytest.raises(BadInput, match="flights is written twice by this batch"):
        call(duck_tables, job)


def test_new_columns_are_added_and_are_null_in_older_rows(tables):
    add(tables, "SELECT 1 AS n")
    add(tables, "SELECT 'x' AS v, 2 AS n")
    add(tables, "SELECT 3 AS n, 'y' AS v")
    assert rows() == [1, 2, 3]
    assert rows("v") == [None, "x", "y"]


def test_no_rows_change_nothing(duck_tables):
    add(duck_tables, "SELECT 1 AS n WHERE false")
    assert delta.load(place()) is None
    add(duck_tables, "SELECT 1 AS n")
    add(duck_tables, "SELECT 1 AS n WHERE false")
    assert rows() == [1]


def test_whole_numbers_without_a_sign_and_long_ones_come_back(duck_tables):
    query = "SELECT 255::UTINYINT AS a, 4294967295::UINTEGER AS n, 1::UBIGINT AS c"
    add(
        duck_tables,
        f"{query}, sum(2) AS d, [1::UINTEGER] AS e, {{'x': 1::USMALLINT}} AS f",
    )
    assert rows() == [4294967295]
    [row] = DeltaTable(place()).to_pyarrow_table().to_pylist()
    assert (row["a"], int(row["c"]), int(row["d"])) == (255, 1, 2)
    assert (row["e"], row["f"]) == ([1], {"x": 1})


# ---- replaced


def day(number, *days):
    """Return a query of one row a day."""
    values = ", ".join(f"({number}, DATE '2026-01-{d:02}')" for d in days)
    return f"SELECT * FROM (VALUES {values}) AS t(n, day)"


def of_days():
    """Return what each day holds."""
    assert rows() is not None
    table = DeltaTable(place()).to_pyarrow_table().to_pylist()
    return sorted((row["day"].day, row["n"]) for row in table)


REPLACE = {"by": "day", "mode": "replace_by"}


def test_what_is_written_again_replaces_its_days_and_no_other(tables):
    add(tables, day(1, 2, 3), **REPLACE)
    add(tables, day(2, 3, 4), **REPLACE)
    assert of_days() == [(2, 1), (3, 2), (4, 2)]
    add(tables, day(3, 3), by="day")
    assert of_days() == [(2, 1), (3, 2), (3, 3), (4, 2)]
    before = DeltaTable(place()).version()
    add(tables, day(4, 3), **REPLACE)
    assert of_days() == [(2, 1), (3, 4), (4, 2)]
    assert DeltaTable(place()).version() == before + 1  # as one commit


def test_values_that_name_odd_directories_are_replaced(duck_tables):
    how = {"by": ["v", "ok"], "mode": "replace_by"}
    values = ["'a/b'", "NULL", "'ü +'", "'50%'"]
    for n in range(2):
        query = " UNION ALL ".join(
            f"SELECT {n} AS n, {v}::VARCHAR AS v, {b} AS ok"
            for v in values
            for b in ("true", "NULL::BOOLEAN")
        )
        add(duck_tables, query, **how)
    assert rows() == [1] * 8
    add(duck_tables, "SELECT 7 AS n, 'a/b' AS v, true AS ok", **how)
    assert rows() == [1] * 7 + [7]


def test_a_decision_that_is_finished_late_does_not_replace_a_later_one(duck_tables):
    add(duck_tables, day(0, 2, 3, 4), **REPLACE)
    late = begun(duck_tables, day(1, 2, 3), **REPLACE)
    late.writes.decide(sending.origin("logs", "b1", late.messages))
    late.writes.close()
    add(duck_tables, day(2, 3), **REPLACE)
    writes.finish("logs", late.writes.key)
    assert of_days() == [(2, 1), (3, 2), (4, 0)]
    add(duck_tables, day(5, 2), **REPLACE)
    assert of_days() == [(2, 5), (3, 2), (4, 0)]


def test_a_day_that_is_replaced_twice_at_once_is_one_of_both(duck_tables, monkeypatch):
    add(duck_tables, day(0, 2), **REPLACE)
    mine = begun(duck_tables, day(1, 2), **REPLACE)
    theirs = begun(duck_tables, day(2, 2), **REPLACE)
    mine.writes.decide(sending.origin("logs", "b1", mine.messages))
    between(monkeypatch, lambda: publish_all(theirs))
    mine.writes.publish()
    assert of_days() == [(2, 2)]  # decided later


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"mode": "replace_by"}, 'name columns, as in by="day"'),
        ({"mode": "upsert"}, "is none of append, replace_by, merge"),
    ],
)
def test_how_rows_cannot_go_into_a_table_is_one_sentence(duck_tables, how, sentence):
    with pytest.raises(BadInput, match=sentence):
        add(duck_tables, day(1, 2), **how)


# ---- looked after


def run_command(capsys, *words):
    root = Root(writes.tables("logs").parent.parent.parent)
    assert cli.spark(root, ["table", *words]) == 0
    return capsys.readouterr().out


def test_small_files_are_joined_while_others_read(duck_tables, capsys):
    for n in range(30):
        add(duck_tables, day(n, 1 + n % 2), by="day")
    reader = DeltaTable(place()).to_pyarrow_dataset()
    said = run_command(capsys, "optimize", "logs/flights")
    assert said == "logs/flights: 30 files before, 2 now\n"
    assert rows() == sorted(range(30), key=str)
    assert reader.to_table().num_rows == 30  # of the version that it has begun with
    add(duck_tables, day(30, 1), by="day")
    assert len(rows()) == 31


def test_a_commit_that_comes_into_a_compaction_stays(duck_tables, monkeypatch, capsys):
    for n in range(3):
        add(duck_tables, day(n, 1), by="day")
    theirs = begun(duck_tables, day(9, 1), **REPLACE)
    load, passed = table_list.load, []

    def loaded(root, table):
        lake = load(root, table)
        passed.append(lake)
        if len(passed) == 1:
            publish_all(theirs)
        return lake

    monkeypatch.setattr(table_list, "load", loaded)
    run_command(capsys, "optimize", "logs/flights")
    assert of_days() == [(1, 9)]


def test_an_older_version_is_brought_back(duck_tables, capsys):
    for n in range(3):
        add(duck_tables, f"SELECT {n} AS n")
    said = run_command(capsys, "restore", "logs/flights", "1")
    assert said == "logs/flights: version 3 is what 1 was\n"
    assert rows() == [0, 1]
    with pytest.raises(BadInput, match="has the versions 0 to 3"):
        run_command(capsys, "restore", "logs/flights", "9")
    add(duck_tables, "SELECT 4 AS n")
    assert rows() == [0, 1, 4]


def test_files_that_no_version_needs_are_removed_after_a_week(
    duck_tables, capsys, monkeypatch
):
    now = time.time
    with monkeypatch.context() as past:
        past.setattr(time, "time", lambda: now() - 8 * 86400)
        for n in range(3):
            add(duck_tables, day(n, 1), **REPLACE)
    said = run_command(capsys, "vacuum", "logs/flights", "--dry-run")
    assert said == "logs/flights: 2 files would be removed\n"
    assert len(files_in(place())) == 3
    assert "2 files removed" in run_command(capsys, "vacuum", "logs/flights")
    assert files_in(place()) == DeltaTable(place()).file_uris()
    assert of_days() == [(1, 2)]


def test_files_that_a_version_of_this_week_needs_stay(duck_tables, capsys):
    for n in range(3):
        add(duck_tables, day(n, 1), **REPLACE)
    assert "0 files removed" in run_command(capsys, "vacuum", "logs/flights")
    assert len(files_in(place())) == 3
    with pytest.raises(BadInput, match="7 days at least"):
        run_command(capsys, "vacuum", "logs/flights", "--keep", "1d")


def test_files_of_a_batch_that_is_not_in_its_table_are_not_removed(duck_tables, capsys):
    add(duck_tables, "SELECT 1 AS n")
    late = begun(duck_tables)
    decide_days_ago(late, 8)
    with pytest.raises(Refused, match="see `rq spark table held`"):
        run_command(capsys, "vacuum", "logs/flights")
    writes.finish("logs", late.writes.key)
    run_command(capsys, "vacuum", "logs/flights")
    assert rows() == [1, 2]


# ---- several at once, and what came between


def decide_days_ago(late, days):
    """Decide what a batch adds, as of some days ago, and end its process."""
    late.writes.decide(sending.origin("logs", "b1", late.messages))
    late.writes.close()
    path = writes.above("logs") / late.writes.key / "list.json"
    decided = json.loads(path.read_text())
    path.write_text(json.dumps({**decided, "time": time.time() - days * 86400}))


def test_a_batch_whose_table_has_changed_meanwhile_is_held(duck_tables):
    late = begun(duck_tables)
    add(duck_tables, "SELECT 'x' AS n")
    with pytest.raises(
        delta.Held, match="the files of this batch are held: the column n"
    ):
        publish_all(late)
    late.writes.close()
    assert rows() == ["x"]
    with pytest.raises(delta.Held):
        writes.finish("logs", late.writes.key)
    [file] = Path(place(), "_rq", late.writes.key).rglob("0-0")
    assert dataset.dataset(file).count_rows() == 1
    # Once the table is as it was the rows go in, and once.
    DeltaTable(place()).delete()
    shutil.rmtree(Path(place(), "_delta_log"))
    for _ in range(2):
        writes.finish("logs", late.writes.key)
    assert rows() == [2]


def test_a_decision_of_three_weeks_is_not_committed(duck_tables):
    late = begun(duck_tables)
    decide_days_ago(late, 21)
    with pytest.raises(delta.Held, match="decided more than 14 days ago"):
        writes.finish("logs", late.writes.key)
    assert delta.load(place()) is None


def test_what_was_committed_is_not_committed_again(duck_tables, monkeypatch):
    late = begun(duck_tables)
    late.writes.decide(sending.origin("logs", "b1", late.messages))
    late.writes.close()
    done = writes.files.write_state

    def killed(path, data):
        if path.name == "done":
            raise KeyboardInterrupt
        done(path, data)

    monkeypatch.setattr(writes.files, "write_state", killed)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            writes.finish("logs", late.writes.key)
    add_of_another = DeltaTable(place())
    assert add_of_another.version() == 0
    monkeypatch.setattr(writes.files, "write_state", done)
    add(duck_tables, "SELECT 3 AS n")
    writes.finish("logs", late.writes.key)
    assert rows() == [2, 3]


def between(monkeypatch, act):
    """Do something when a table has been loaded for a commit, and not yet committed."""
    load, passed = delta.load, []

    def loaded(path):
        table = load(path)
        passed.append(path)
        if len(passed) == 2:
            act()
        return table

    monkeypatch.setattr(delta, "load", loaded)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_that_comes_between_is_in_nobodys_way(
    duck_tables, monkeypatch, is_there
):
    if is_there:
        add(duck_tables, "SELECT 1 AS n")
    mine, theirs = begun(duck_tables), begun(duck_tables, "SELECT 7 AS n")
    between(monkeypatch, lambda: publish_all(theirs))
    publish_all(mine)
    assert rows() == [1, 2, 7] if is_there else [2, 7]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_column_that_comes_between_is_null(duck_tables, monkeypatch, is_there):
    if is_there:
        add(duck_tables, "SELECT 1 AS n")
    mine, theirs = begun(duck_tables), begun(duck_tables, "SELECT 7 AS n, 1 AS x")
    between(monkeypatch, lambda: publish_all(theirs))
    publish_all(mine)
    assert rows() == [1, 2, 7] if is_there else [2, 7]


def test_a_commit_that_comes_between_may_make_another_table(duck_tables, monkeypatch):
    mine, theirs = begun(duck_tables), begun(duck_tables, "SELECT 'x' AS n")
    between(monkeypatch, lambda: publish_all(theirs))
    with pytest.raises(delta.Held, match="n is string in the table and integer here"):
        publish_all(mine)
    assert rows() == ["x"]


@pytest.mark.parametrize("is_there", [True, False])
def test_two_that_finish_one_decision_add_it_once(duck_tables, monkeypatch, is_there):
    if is_there:
        add(duck_tables, "SELECT 1 AS n")
    mine = begun(duck_tables)
    mine.writes.decide(sending.origin("logs", "b1", mine.messages))
    own = writes.above("logs") / mine.writes.key
    between(monkeypatch, lambda: writes._publish(own))
    writes._publish(own)
    assert rows() == [1, 2] if is_there else [2]
    assert DeltaTable(place()).version() == int(is_there)


def test_rows_that_come_between_are_replaced(duck_tables, monkeypatch):
    add(duck_tables, day(0, 2), **REPLACE)
    mine = begun(duck_tables, day(1, 2), **REPLACE)
    theirs = begun(duck_tables, day(2, 2, 3), by="day")
    between(monkeypatch, lambda: publish_all(theirs))
    publish_all(mine)
    assert of_days() == [(2, 1), (3, 2)]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("left", [0, 100])
def test_a_commit_that_a_power_cut_has_torn_is_done_again(duck_tables, version, left):
    late = begun(duck_tables)
    if version:
        add(duck_tables, "SELECT 1 AS n")
    late.writes.decide(sending.origin("logs", "b1", late.messages))
    late.writes.publish()
    late.writes.close()
    log = Path(place(), "_delta_log", f"{version:020}.json")
    log.write_bytes(log.read_bytes()[:left])
    (writes.above("logs") / late.writes.key / "done").unlink()
    writes.finish("logs", late.writes.key)
    assert rows() == ([1, 2] if version else [2])


def test_a_torn_commit_that_another_has_replaced_meanwhile_stays(
    duck_tables, monkeypatch
):
    for n in range(2):
        add(duck_tables, f"SELECT {n} AS n")
    log = Path(place(), "_delta_log", f"{1:020}.json")
    whole, wait = log.read_bytes(), delta_log.locks.lock_waiting

    def late(path):
        log.unlink()  # as another process does that has seen it torn
        log.write_bytes(whole)
        return wait(path)

    log.write_bytes(whole[:100])
    monkeypatch.setattr(delta_log.locks, "lock_waiting", late)
    assert rows_of(delta.load(place())) == [0, 1]


def rows_of(table):
    return sorted(table.to_pyarrow_table()["n"].to_pylist())


def test_a_log_that_is_damaged_elsewhere_is_named_and_left(duck_tables):
    for n in range(2):
        add(duck_tables, f"SELECT {n} AS n")
    log = Path(place(), "_delta_log", f"{0:020}.json")
    log.write_bytes(b"{")
    with pytest.raises(BadInput, match="its log cannot be read"):
        add(duck_tables, "SELECT 3 AS n")
    assert len(list(log.parent.glob("*.json"))) == 2


def test_many_that_write_one_table_at_once_lose_nothing(duck_tables):
    late = [begun(duck_tables, f"SELECT {n} AS n") for n in range(8)]
    assert publish_at_once(late) == []
    assert rows() == list(range(8))
    assert DeltaTable(place()).version() == 7


def test_a_commit_outlasts_a_power_cut(duck_tables, monkeypatch):
    synced, sync = set(), delta_log.files.sync

    def noted(path):
        synced.add(str(path))
        sync(path)

    monkeypatch.setattr(delta_log.files, "sync", noted)
    for number in range(2):
        add(duck_tables, f"SELECT {number} AS n")
        log = Path(place(), "_delta_log")
        assert {str(log), f"{log}/{number:020}.json"} <= synced


# ---- looked at


def command(capsys, *words):
    """Run `rq spark table`; return what it prints for programs."""
    root = Root(writes.tables("logs").parent.parent.parent)
    assert cli.spark(root, ["table", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_commands_tell_of_tables(duck_tables, capsys):
    assert command(capsys, "ls") == []
    add(duck_tables, ROWS, by="day")
    add(duck_tables, ROWS, by="day")
    [listed] = command(capsys, "ls")
    assert (listed["table"], listed["rows"], listed["files"]) == ("logs/flights", 6, 4)
    size = sum(os.path.getsize(file) for file in DeltaTable(place()).file_uris())
    assert (listed["version"], listed["bytes"]) == (1, size)
    assert time.time() - 600 < listed["written"] <= time.time()
    newest, first = command(capsys, "show", "logs/flights")
    assert (newest["version"], newest["ids"], newest["messages"]) == (1, ["m1"], 1)
    assert (first["version"], first["queue"], first["batch"]) == (0, "logs", "b1")
    assert len(command(capsys, "show", "logs/flights", "--limit", "1")) == 1
    columns = command(capsys, "schema", "logs/flights")
    assert {"column": "day", "type": "date", "by": True} in columns
    assert {"column": "n", "type": "integer", "by": False} in columns


def test_commands_tell_what_is_held(duck_tables, capsys):
    late = begun(duck_tables)
    add(duck_tables, "SELECT 'x' AS n")
    with pytest.raises(delta.Held):
        publish_all(late)
    late.writes.close()
    [held] = command(capsys, "held")
    assert (held["queue"], held["key"]) == ("logs", late.writes.key)
    assert "n is string in the table and integer here" in held["why"]


@pytest.mark.parametrize("name", ["flights", "logs/none", "logs/../x", "/", "a/b/c"])
def test_commands_say_that_there_is_no_such_table(duck_tables, capsys, name):
    with pytest.raises(BadInput, match=r"names no table|there is no table logs/none"):
        command(capsys, "show", name)


# ---- once, whatever is killed


def seen_of(*paths):
    """Return what two readers see in each table, sorted: the same."""
    for path in filter(lambda path: (path / "_delta_log").is_dir(), paths):
        table = DeltaTable(str(path))
        found = table.to_pyarrow_table(columns=["msg_id", "line"]).to_pylist()
        seen = sorted((row["msg_id"], row["line"]) for row in found)
        frame = polars.read_delta(str(path)).select("msg_id", "line")
        assert sorted(frame.rows()) == seen
        yield seen


@pytest.mark.slow
@pytest.mark.parametrize("kind", POINTS)
def test_each_row_is_there_once_whatever_is_killed(tmp_path, kind):
    above = tmp_path / "spark/tables/logs"
    places = [above / "flights", *([above / "second"] if kind == "two" else [])]
    sent = kill_at_each(tmp_path, kind, lambda: list(seen_of(*places)))
    if kind == "contract":
        assert rejected_of(above / "flights__rejected") == sorted(sent)
    check_left(tmp_path, [] if kind == "merge" else places)


def rejected_of(path):
    """Return of which messages the rejected rows are."""
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert {(row["column"], row["value"]) for row in found} == {("line", "z")}
    return sorted(json.loads(row["row"])["msg_id"] for row in found)


def check_left(root, places):
    """Nothing is left but files that the log names."""
    for where in places:
        assert [path for path in (where / "_rq").iterdir() if path.is_dir()] == []
        assert sorted(files_in(where)) == sorted(DeltaTable(str(where)).file_uris())
    for path in (root / "spark/writes/logs").iterdir():
        assert path.name == "lock" or (path / "done").is_file()


# ---- tried without a queue

TRIED = """
@job(engine="duckdb")
def run(q):
    q.table(q.lines(), "flights", by="src")
"""


def test_what_is_tried_is_a_table_below_the_directory_of_results(tmp_path, monkeypatch):
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    (tmp_path / "logs/web1").mkdir(parents=True)
    (tmp_path / "logs/web1/log").write_text("a\nb\n")
    (tmp_path / "run").write_text(HEAD + TRIED)
    said = []
    for _ in range(2):  # what an earlier try wrote is not there any more
        where = tmp_path / "run", tmp_path / "logs", tmp_path / "out"
        trial.run(*where, said.append, said.append)
        table = DeltaTable(str(tmp_path / "out/written/tables/flights"))
        assert table.to_pyarrow_table().num_rows == 2
    assert f"would write 2 rows, now in {tmp_path}/out/written/tables/flights" in said
    functions.F.use(functions.SPARK)


def test_a_table_that_cannot_be_read_hides_no_other(tmp_path, capsys):
    root = Root(tmp_path)
    (rq_tables.place(root, Name("shop", "orders")) / LOG).mkdir(parents=True)
    assert cli.spark(root, ["table", "ls", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert entry["table"] == "shop/orders"
    assert "there is no table shop/orders" in entry["why"]
