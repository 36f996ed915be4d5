"""Delta tables in a store, as the setting `tables` of a queue says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import delta_jobs, spark_days
from harness.delta_jobs import add, begun, call, publish_all, publish_at_once
from harness.queues import running_queue
from harness.spark_jobs import HEAD, prepared, tools
from harness.stored_tables import RIGHTS, Lake

from rq import config, tables
from rq.cli import spark_table
from rq.errors import BadConfig, BadInput, RQError
from rq.spark import delta, table_care, table_places, table_rights, writes
from rq.tables import Name

FLIGHTS = Name("logs", "flights")


@pytest.fixture
def lake(store):
    return Lake(store)


@pytest.fixture(params=["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request, tmp_path, monkeypatch, lake):
    """Give tables on each engine, of a queue whose tables are in a store."""
    monkeypatch.setenv(table_places.VARIABLE, lake.setting)
    yield from delta_jobs.on_engine(request, tmp_path, monkeypatch)


@pytest.fixture
def duck_tables(tmp_path, monkeypatch, lake):
    monkeypatch.setenv(table_places.VARIABLE, lake.setting)
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


# ---- rows


def test_rows_are_added_and_replaced(engine, lake):
    days = "SELECT * FROM (VALUES (1, 'a/b %'), (2, 'c=d'), (3, NULL)) AS t(n, day)"
    add(engine, days, by="day")
    add(engine, "SELECT 4 AS n, 'c=d' AS day, 'x' AS more", by="day", mode="replace_by")
    assert lake.rows() == [1, 3, 4]
    assert lake.rows("day") == [None, "a/b %", "c=d"]
    assert lake.rows("more") == [None, None, "x"]
    assert not tables.is_here(config.find_root(None), FLIGHTS)
    assert lake.left() == []


def test_rows_are_merged(engine, lake):
    values = "SELECT * FROM (VALUES {}) AS t(n, state)"
    add(engine, values.format("(1, 'new'), (2, 'new')"), mode="merge", key="n")
    add(engine, values.format("(2, 'sent'), (3, 'new')"), mode="merge", key="n")
    assert lake.rows() == [1, 2, 3]
    assert lake.rows("state") == ["new", "new", "sent"]


def test_rows_that_break_a_contract_are_beside_the_table(engine, lake):
    def job(q):
        q.contract("flights", {"n": {"least": 0}})
        q.table(q.spark.sql("SELECT * FROM (VALUES (1), (-1)) AS t(n)"), "flights")

    call(engine, job)
    assert lake.rows() == [1]
    assert lake.rows("value", "flights__rejected") == ["-1"]
    assert lake.left() == []


def test_a_table_is_read_back_and_what_does_not_fit_is_refused(engine, lake):
    add(engine, "SELECT 1 AS n UNION ALL SELECT 2")

    def copy(q):
        q.table(q.table_of("flights").where("n > 1"), "copies")

    call(engine, copy)
    assert lake.rows("n", "copies") == [2]
    with pytest.raises(BadInput, match="flights: the column n is"):
        add(engine, "SELECT 'a' AS n")
    assert lake.rows() == [1, 2]


def test_many_that_write_one_table_at_once_lose_nothing(duck_tables, lake):
    late = [begun(duck_tables, f"SELECT {n} AS n") for n in range(8)]
    assert publish_at_once(late) == []
    assert lake.rows() == list(range(8))


def test_two_that_finish_one_decision_add_it_once(duck_tables, lake, monkeypatch):
    """Each has looked before the other's commit: one is refused, looks again, and finds
    it there."""
    add(duck_tables, "SELECT 1 AS n")
    late = begun(duck_tables)
    late.writes.decide({"queue": "logs"})
    does, passed = delta._append, []

    def other_first(*of):
        if not passed:
            passed.append(1)
            writes._publish(writes.above("logs") / late.writes.key)
        return does(*of)

    monkeypatch.setattr(delta, "_append", other_first)
    assert late.writes.publish()
    assert passed
    assert lake.rows() == [1, 2]


# ---- where a table is


def test_a_table_stays_where_it_was_made(duck_tables, lake, monkeypatch):
    add(duck_tables, "SELECT 1 AS n")
    for setting in ("", lake.setting.replace("/lake/", "/other/")):
        monkeypatch.setenv(table_places.VARIABLE, setting)
        add(duck_tables, "SELECT 2 AS n")
    assert lake.rows() == [1, 2, 2]
    monkeypatch.setenv(table_places.VARIABLE, "")
    call(duck_tables, lambda q: q.table(q.spark.sql("SELECT 3 AS n"), "here"))
    monkeypatch.setenv(table_places.VARIABLE, lake.setting)
    call(duck_tables, lambda q: q.table(q.spark.sql("SELECT 4 AS n"), "here"))
    assert tables.is_here(config.find_root(None), Name("logs", "here"))
    assert lake.names() == ["flights"]


def test_a_batch_of_a_table_that_was_made_elsewhere_is_held(
    duck_tables, lake, monkeypatch
):
    late = begun(duck_tables)
    monkeypatch.setenv(table_places.VARIABLE, "")
    add(duck_tables, "SELECT 1 AS n")
    with pytest.raises(delta.Held, match=r"decided for s3://.*/lake/flights, and the"):
        publish_all(late)
    assert delta_jobs.rows() == [1]
    assert lake.names() == []


def test_a_batch_of_a_table_that_was_made_in_a_store_is_held(
    duck_tables, lake, monkeypatch
):
    """Below the root no reader of the table would see its rows."""
    monkeypatch.setenv(table_places.VARIABLE, "")
    late = begun(duck_tables)
    monkeypatch.setenv(table_places.VARIABLE, lake.setting)
    add(duck_tables, "SELECT 1 AS n")
    with pytest.raises(delta.Held, match=r"and the table is s3://.*/lake/flights si"):
        publish_all(late)
    assert not tables.is_here(config.find_root(None), FLIGHTS)
    assert lake.rows() == [1]


def sifted(query):
    def job(q):
        q.contract("flights", {"n": {"least": 0}}, most_rejects=1)
        q.table(q.spark.sql(query), "flights")

    return job


@pytest.mark.parametrize("is_first_here", [True, False])
def test_a_table_is_beside_that_of_what_did_not_fit(
    duck_tables, lake, monkeypatch, is_first_here
):
    settings = ["", lake.setting] if is_first_here else [lake.setting, ""]
    for setting, query in zip(
        settings, ["SELECT -1 AS n", "SELECT -2 AS n UNION ALL SELECT 3"], strict=True
    ):
        monkeypatch.setenv(table_places.VARIABLE, setting)
        call(duck_tables, sifted(query))
    names = [] if is_first_here else ["flights", "flights__rejected"]
    assert lake.names() == names
    seen = delta_jobs.rows() if is_first_here else lake.rows()
    assert seen == [3]


@pytest.mark.parametrize("inner", ["", "flights/", "%66lights/deep/"])
def test_a_place_that_another_queue_has_for_a_table_is_refused(
    duck_tables, lake, monkeypatch, inner
):
    """Else each would have the rows of both, or a vacuum of one take those of the other."""
    add(duck_tables, "SELECT 1 AS n")
    root = config.find_root(None)
    setting = lake.setting.replace("/lake/", f"/lake/{inner}")
    with pytest.raises(BadInput, match=r"logs/flights is there: give each queue a pre"):
        table_places.of(root, Name("other", "flights"), setting)
    where = f"s3://{lake.bucket}/lake/{inner}flights{lake.end}"
    with pytest.raises(delta.Held, match="logs/flights is there"):
        table_places.note(Name("other", "flights"), where)
    assert table_places.of(root, Name("other", "hits"), lake.setting)
    assert lake.rows() == [1]


@pytest.mark.parametrize(
    "where", ["{}/else", "../../x", "file://{}/x", "", 5, None, ["s3://b/x"]]
)
def test_a_note_that_names_no_store_is_damaged(duck_tables, tmp_path, where):
    root = config.find_root(None)
    note = tables.place(root, FLIGHTS) / tables.STORED
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"where": where}).replace("{}", str(tmp_path)))
    with pytest.raises(BadInput, match=r"stored\.json is damaged"):
        add(duck_tables, "SELECT 1 AS n")
    assert [*note.parent.iterdir()] == [note]


def test_many_that_note_where_a_table_is_at_once_do_so(duck_tables, lake):
    root = config.find_root(None)
    with ThreadPoolExecutor(8) as pool:
        for number in range(40):
            name = Name("logs", f"t{number}")
            where = f"s3://{lake.bucket}/lake/{name.table}{lake.end}"
            list(pool.map(table_places.note, [name] * 8, [where] * 8))
            assert tables.stored(root, name) == where


def test_a_note_that_cannot_be_read_hides_no_other_table(duck_tables, lake, capsys):
    add(duck_tables, "SELECT 1 AS n")
    root = config.find_root(None)
    (tables.place(root, Name("logs", "bad")) / tables.STORED).mkdir(parents=True)
    shown = json.loads(command(root, capsys, "ls", "--json"))
    assert [(entry["table"], "why" in entry) for entry in shown] == [
        ("logs/bad", True),
        ("logs/flights", False),
    ]


def test_a_table_of_another_queue_is_where_that_wants_it(
    duck_tables, lake, monkeypatch
):
    owner = config.find_root(None).queue("shop")
    owner.path.mkdir(parents=True)
    spark = {"allow": ["logs writes orders"], "tables": lake.setting}
    owner.config.write_text(json.dumps({"script": "/bin/true", "spark": spark}))
    monkeypatch.setenv(table_places.VARIABLE, "")
    for _ in range(2):
        call(
            duck_tables, lambda q: q.table(q.spark.sql("SELECT 1 AS n"), "shop/orders")
        )
    assert lake.rows("n", "orders") == [1, 1]
    assert [name.text for name in tables.every(config.find_root(None))] == [
        "shop/orders"
    ]
    where = table_rights.place("logs", "shop/orders", table_rights.READS)
    assert where.partition("?")[0] == f"s3://{lake.bucket}/lake/orders"


# ---- commands and pages, which have no rights but those of the queue


@pytest.fixture
def alone(duck_tables, lake, monkeypatch):
    """Let the rights be in the settings of the queue alone; give its root."""
    for value in (1, 2, 3):
        add(duck_tables, f"SELECT {value} AS n")
    root = config.find_root(None)
    root.queue("logs").path.mkdir(parents=True, exist_ok=True)
    env = {n: os.environ[n] for n in os.environ if n.startswith("AWS_")}
    env |= {"AWS_SECRET_ACCESS_KEY": "very-secret"}
    settings = {"script": "/bin/true", "env_vars": env}
    root.queue("logs").config.write_text(json.dumps(settings))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        yield root


def command(root, capsys, *words):
    assert spark_table.table(root, list(words)) == 0
    return capsys.readouterr().out


def test_commands_look_after_a_table(alone, lake, capsys):
    table = "logs/flights"
    [entry] = json.loads(command(alone, capsys, "ls", "--json"))
    assert (entry["table"], entry["rows"], entry["files"]) == (table, 3, 3)
    assert len(json.loads(command(alone, capsys, "show", table, "--json"))) == 3
    [column] = json.loads(command(alone, capsys, "schema", table, "--json"))
    assert column["column"] == "n"
    before = tables.stamp(alone, FLIGHTS)
    assert "3 files before, 1 now" in command(alone, capsys, "optimize", table)
    assert tables.stamp(alone, FLIGHTS) != before
    assert lake.rows() == [1, 2, 3]
    assert "version 4 is what 0 was" in command(alone, capsys, "restore", table, "0")
    assert lake.rows() == [1]
    assert "0 files removed" in command(alone, capsys, "vacuum", table)
    assert json.loads(command(alone, capsys, "held", "--json")) == []
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_a_held_batch_is_committed_with_the_rights_of_its_queue(
    alone, duck_tables, lake, capsys, monkeypatch
):
    with table_places.rights_of(alone, "logs"):
        late = begun(duck_tables, "SELECT 4 AS n")
        late.writes.decide({"queue": "logs"})
        late.writes.close()
    key = late.writes.key
    said = command(alone, capsys, "held", "logs", "--commit", key)
    assert "to the table flights" in said
    assert lake.rows() == [1, 2, 3, 4]


def test_pages_read_a_table_and_tell_no_secret(alone):
    words = [
        sys.executable,
        "-m",
        "rq.spark.table_facts",
        str(alone.path),
        "logs/flights",
    ]
    ended = subprocess.run(words, capture_output=True, check=True, env={})
    [facts] = json.loads(ended.stdout)["tables"]
    assert (facts["why"], facts["rows"], facts["files"]) == ("", 3, 3)
    assert [step["rows"] for step in facts["versions"]] == [1, 1, 1]
    told = [ended.stdout + ended.stderr]
    told += [p.read_bytes() for p in alone.spark.rglob("*") if p.is_file()]
    assert not any(b"very-secret" in text or b"AWS_" in text for text in told)


# ---- the setting


@pytest.mark.parametrize(
    "value",
    ["/data", "s3://", "gs://b/x", "s3://key:word@b/x", 5, "s3://b/a b",
     "s3://b/./a", "s3://b/a//b", "s3://b/%2e%2e/a", "s3://b/a%0Ab"],
)  # fmt: skip
def test_a_setting_that_is_no_place_is_refused_and_not_repeated(tmp_path, value):
    path = tmp_path / "config.json"
    settings = {"script": "/bin/true", "spark": {"tables": value}}
    with pytest.raises(BadConfig, match="say s3://BUCKET/PREFIX/") as refused:
        config.queue_config(settings, path)
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("end", ["?key=word", "?scheme=ftp", "?region=a.b"])
def test_a_store_that_cannot_be_is_one_sentence(duck_tables, lake, monkeypatch, end):
    monkeypatch.setenv(table_places.VARIABLE, f"s3://{lake.bucket}/lake/{end}")
    with pytest.raises(RQError, match=r"\?(key|scheme|region)"):
        add(duck_tables, "SELECT 1 AS n")


# ---- days


def test_a_day_in_a_store_is_made_again(duck_tables, lake, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    place = spark_days.Place(tmp_path, "hits")
    place.code(times(1))
    place.two()
    assert lake.columns("hits", "day", "n") == spark_days.ALL
    table_care.optimize(place.root, Name("logs", "hits"))  # files of several batches
    place.code(times(10))
    assert place.again(spark_days.MON) == "4 rows of 4 messages in 2 batches"
    assert lake.columns("hits", "day", "n") == spark_days.NEW
    assert lake.left() == []


def times(factor):
    """Return what lets a job write a Delta table, of numbers so many times as large."""
    number = f'F.expr("CAST(n AS INT) * {factor}").alias("n"), "msg_id"'

    def change(text):
        return text.replace("q.write", "q.table").replace('"n", "msg_id"', number)

    return change


# ---- several processes

PATIENCE = 120.0
JOB = """
import json, os

@job(engine="duckdb")
def run(q):
    rows = q.lines().select("msg_id", "line")
    q.table(rows, "flights", mode=os.environ["MODE"], **json.loads(os.environ["HOW"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "how"), [("append", {}), ("merge", {"key": "msg_id"})]
)
def test_processes_that_write_one_table_at_once_lose_nothing(lake, tmp_path, mode, how):
    env = {**RIGHTS, "AWS_SECRET_ACCESS_KEY": "very-secret"}
    env |= {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin"}
    env |= {"MODE": mode, "HOW": json.dumps(how)}
    settings = {"exec_prefix": "", "env_vars": env, "num_workers": 3}
    settings |= {"spark": {"tables": lake.setting}}
    with running_queue(tmp_path, HEAD + JOB, "logs", **settings) as queue:
        sent = [prepared(queue, {"log": b"a\n"}) for _ in range(6)]
        for msg_id in sent:
            assert queue.ended(msg_id, PATIENCE)["state"] == "done"
    assert lake.pairs("flights") == [(msg_id, "a") for msg_id in sorted(sent)]
    assert "very-secret" not in told(tmp_path)


def told(root):
    """Return what logs and messages of a root say."""
    return "".join(
        path.read_text(errors="replace")
        for path in root.rglob("*")
        if path.is_file() and path.name != "config.json"
    )
