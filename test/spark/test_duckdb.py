"""The same job without Spark: on DuckDB, which reads what its messages bring."""

from __future__ import annotations

import contextlib
import gzip
import json
import threading

import pytest
from harness.queues import running_queue
from harness.spark_jobs import HEAD, prepared, tools

from rq.errors import BadConfig, BadInput
from rq.scripts.pipe import Verb
from rq.spark import attachments, duck, functions, job_file, jobs, remote
from rq.spark.duck_tables import DuckTables, Files
from rq.spark.functions import F
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job
from rq.spark.spark_tables import SparkTables

LINE = (
    '10.0.0.{} - - [21/Nov/2026:10:{:02}:00 +0100] "GET /{} HTTP/1.1" {} {} "-" "c"\n'
)
PATIENCE = 60.0


class Desk:
    """The outlet of a job of these tests."""

    def __init__(self, tables):
        self._tables, self.said = tables, []

    def tables(self):
        return self._tables

    def failed(self, q):
        pass

    def say(self, verb, text):
        self.said.append(f"{verb} {text}")


@pytest.fixture
def messages(tmp_path, monkeypatch):
    """Give three messages with a log each, of 300 lines and one that is none."""
    for number in range(3):
        place = tmp_path / f"m{number}" / "attach"
        place.mkdir(parents=True)
        lines = [
            LINE.format(n % 9, n % 60, n % 4, 500 if n % 7 else 200, n)
            for n in range(300)
        ]
        text = "".join([*lines, "no log, café\n"]).encode()
        (place / "log").write_bytes(gzip.compress(text) if number else text)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tuple(
        Given(f"m{number}", tmp_path / f"m{number}", {"src": f"host{number}"})
        for number in range(3)
    )


@pytest.fixture
def duckdb(tmp_path, messages, monkeypatch):
    """Give tables on DuckDB."""
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    functions.F.use(functions.DUCKDB)
    batch = Batch("b", "logs", messages)
    tables = DuckTables(duck.session(duck.Limits("200MB", 2), batch.readable), 2)
    yield tables
    tables.close()
    functions.F.use(functions.SPARK)


def errors(q):
    hits = q.parse(q.lines(), "combined")
    q.expect(hits, rows=800, not_null=["time", "host"], most_rejects=0.01)
    hour = F.date_trunc("hour", "time")
    bad = hits.where("status >= 500").groupBy("src", hour.alias("hour"), "url")
    q.attach(bad.agg(F.count("*").alias("n"), F.sum("bytes").alias("b")), "bad.csv")
    q.attach(q.rejects, "rejects.csv")
    q.send("box")


def made(tables, messages, function=errors):
    """Call a job; return what it has made, its lines sorted, and its figures."""
    q = jobs.call(Job(function), Batch("b", "logs", messages), Desk(tables), messages)
    figures = json.loads(q.figures([]))
    texts = [sorted(f.read_text().splitlines()) for one in q.letters for f in one.files]
    return texts, figures, q


def test_a_job_makes_the_same_on_duckdb_and_on_spark(spark, duckdb, messages):
    own, figures, q = made(duckdb, messages)
    assert figures.pop("duckdb_us") > 0
    assert len(own[0]) == 13
    functions.F.use(functions.SPARK)
    theirs, others, _ = made(SparkTables(spark), messages)
    assert others.pop("spark_us") > 0
    assert own == theirs
    assert figures == others
    assert figures["rows_in"] == 903
    assert figures["rejected"] == 3
    assert q.checked == ["900 rows, no nulls in time, host"]


def test_lines_may_be_chosen_before_they_are_parsed_and_asked_in_sql(duckdb, messages):
    def job(q):
        some = q.lines().where("src = 'host1'")
        urls = q.parse(some, r"\"GET (?P<url>/(\d)) .*\" (?P<status>\d{3}) ")
        urls.createOrReplaceTempView("urls")
        rows = q.spark.sql("SELECT url, count(*) AS n FROM urls GROUP BY ALL")
        q.attach(rows.orderBy("url"), "urls.csv")
        q.send("box")

    texts, figures, q = made(duckdb, messages, job)
    assert texts == [sorted(['"url","n"', *(f'"/{n}",75' for n in range(4))])]
    assert figures["rejected"] == 1
    assert [row["line"] for row in q.rejects.collect()] == ["no log, café"]


def test_all_bad_files_are_found_at_once(duckdb, messages):
    for message in messages[:2]:
        path = message.folder / "attach" / "more.gz"
        path.write_bytes(gzip.compress(b"a line\n" * 1000)[:-9])
    calls = []

    def job(q):
        calls.append([message.msg_id for message in q.messages])
        q.attach(q.lines().groupBy("src").count(), "n.csv")
        q.send("box")

    texts, _, q = made(duckdb, messages, job)
    assert calls == [["m0", "m1", "m2"], ["m2"]]
    assert {name: verb for name, (verb, _) in q.endings.items()} == {
        "m0": Verb.ERR,
        "m1": Verb.ERR,
    }
    assert "more.gz" in q.endings["m0"][1]
    assert texts == [['"host2",301', '"src","count"']]


def test_an_error_after_a_bad_file_is_told_as_it_is(duckdb, messages):
    (messages[0].folder / "attach" / "b.gz").write_bytes(
        gzip.compress(b"a\n" * 99)[:-9]
    )

    def job(q):
        with contextlib.suppress(Exception):
            q.lines().count()
        raise KeyError("of the job")

    with pytest.raises(KeyError, match="of the job"):
        made(duckdb, messages, job)


def test_a_file_that_was_read_once_is_read_again_by_each_action(duckdb, messages):
    def job(q):
        lines = q.lines()
        assert [lines.count(), len(lines.take(1)), lines.count()] == [903, 1, 903]

    assert made(duckdb, messages, job)[1]["rows_in"] == 903


def test_files_are_read_twice_at_once(duckdb, messages):
    def job(q):
        lines = q.lines()
        twice = lines.join(lines.select("src").distinct(), "src").union(lines)
        assert [twice.count() for _ in range(5)] == [1806] * 5
        hits = q.parse(lines, "combined").select("src", "file")
        assert hits.union(q.rejects.select("src", "file")).count() == 903

    assert made(duckdb, messages, job)[1]["rejected"] == 3


def test_a_scan_ends_when_its_own_files_have_been_read(messages):
    """Not when those of another one that began meanwhile have been."""
    every = attachments.files(messages, [])
    files = Files(every, remote.allow([]), 2)
    first, second = (files.batches(lambda batch: batch) for _ in range(2))
    rows = next(first).num_rows + next(second).num_rows
    for scan in (first, second):
        rows += sum(batch.num_rows for batch in scan)
    assert rows == 2 * 903


def test_a_job_that_is_cancelled_ends_at_once(duckdb):
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b"
    timer = threading.Timer(0.3, duckdb.cancel)
    timer.start()
    with pytest.raises(Exception, match="Interrupt"):
        duckdb.session.conn.sql(query).fetchall()
    timer.join()


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda q: F.no_such("a"), r"F\.no_such: DuckDB has none"),
        (lambda q: q.lines().pivot("a"), r"DataFrame\.pivot: DuckDB has none"),
        (lambda q: q.spark.sparkContext.defaultParallelism, "defaultParallelism: Duck"),
        (lambda q: q.lines().where("nope = 1").count(), "nope"),
        (lambda q: q.parse(q.lines(), r"(?=a)(?P<a>a)"), "cannot be used on DuckDB"),
        (lambda q: q.parse(q.lines(), r"(?P<a>a)(?P=a)"), "cannot be used on DuckDB"),
        (lambda q: q.parse(q.lines(), r"nothing (?P<a>a)$").count(), "903 of 903"),
        (lambda q: q.expect(q.lines(), unique=["src"]), "301 with src='host"),
        (lambda q: q.expect(q.lines(), rows=904), "at least 904 rows, there are 903"),
        (lambda q: q.attach(q.lines(), "a.csv", at_least=904), "has 903 rows"),
        (lambda q: q.expect(q.lines(), not_null=["b"]), "there is no column 'b'"),
        (
            lambda q: q.spark.sql("SELECT * FROM read_csv('/etc/passwd')"),
            "working directory, and nothing else",
        ),
        (lambda q: q.expect(q.lines(), not_null="no"), "there is no column 'no'"),
    ],
)
def test_what_cannot_be_is_one_sentence(duckdb, messages, what, sentence):
    with pytest.raises(Exception, match=r"\w") as failed:
        made(duckdb, messages, what)
    verb, text = jobs.verdict(failed.value)
    assert verb is Verb.ERR
    assert "\n" not in text
    assert sentence.replace("\\", "") in text


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_text('{work}/../../etc/hostname')",
        "SELECT * FROM 'https://example.com/a.csv'",
        "SELECT * FROM 's3://logs/a.csv'",
        "COPY (SELECT 1) TO '/tmp/rq-duckdb-out.csv'",
        "ATTACH '/tmp/rq-duckdb-out.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "RESET lock_configuration",
    ],
)
def test_there_is_no_way_around_what_rq_fetches(duckdb, tmp_path, statement):
    with pytest.raises(Exception, match=r"(?i)permission|configuration"):
        duckdb.session.conn.sql(statement.format(work=tmp_path)).fetchall()


def test_what_messages_bring_and_the_working_directory_can_be_read(duckdb, tmp_path):
    (tmp_path / "work" / "a.csv").write_text("a\n1\n")
    query = f"SELECT * FROM '{tmp_path}/work/a.csv'"
    assert duckdb.session.sql(query).collect() == [(1,)]
    query = (
        f"SELECT length(content) > 1 AS n FROM read_text('{tmp_path}/m0/attach/log')"
    )
    assert duckdb.session.sql(query).collect()[0]["n"]


def test_too_little_memory_is_told_and_tried_again(duckdb, monkeypatch):
    monkeypatch.setenv("RQ_SPARK_MEMORY", "200MB")
    query = "SELECT list(range) FROM range(300000000)"
    with pytest.raises(Exception, match="Out of Memory") as failed:
        duckdb.session.conn.sql(query).fetchall()
    assert "ran out of memory, it had 200MB" in duck.failure(failed.value)
    assert duck.failure(ValueError("x")) is None
    with pytest.raises(BadConfig, match="refuses memory_limit many"):
        duck.session(duck.Limits("many", 1), [])


def test_an_engine_that_is_not_there_is_named(tmp_path, monkeypatch):
    script = tmp_path / "run"
    text = "from rq.spark import job\n@job(engine='dukdb')\ndef run(q): pass\n"
    script.write_text(text)
    with pytest.raises(BadInput, match=r"'dukdb'\) is neither spark nor duckdb"):
        job_file.load(script, print)
    monkeypatch.setattr(duck.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("RQ_SPARK_ENGINE", "duckdb")
    with pytest.raises(
        BadConfig, match="duckdb, pyarrow not installed: run `rq up --du"
    ):
        job_file.load(script, print)


JOB = """
import sys

@job(engine="duckdb")
def run(q):
    hits = q.parse(q.lines(), r"(?P<word>\\w+)")
    q.attach(hits.groupBy("word").count().orderBy("word"), "words.csv")
    loaded = [name for name in ("pyspark", "py4j") if name in sys.modules]
    limits = q.spark.sql("SELECT current_setting('threads') AS n").collect()[0]["n"]
    q.send("box", param1=str(loaded), param2=str(limits))
"""


@pytest.mark.parametrize("worker", ["once", "persistent"])
def test_a_queue_whose_job_needs_no_spark(tmp_path, worker):
    """One message after the other, each with its own database; Spark is never loaded."""
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin", "RQ_JAVA_HOME": "/nowhere"}
    settings = {"exec_prefix": "", "env_vars": env, "spark": {"threads": 1}}
    settings |= {"worker": worker, "num_workers": 1}
    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "box") as box,
        running_queue(tmp_path, HEAD + JOB, "words", **settings) as queue,
    ):
        for number in (1, 2):
            text = b"a\nb\na\n"[: 2 * number]
            msg_id = prepared(queue, {"log": text})
            ended = queue.ended(msg_id, seconds=PATIENCE)
            assert ended["status"].startswith("done - sent box/")
            sent = queue.get(msg_id)["status"].rpartition("/")[2]
            box.ended(sent, seconds=PATIENCE)
            message = box.get(sent)
            assert (message["param1"], message["param2"]) == ("[]", "1")
            [made] = box.root.path.glob(f"queue/box/done/**/{sent}/attach/words.csv")
            assert made.read_text().splitlines()[1:] == ['"a",1', '"b",1'][:number]
        figures = json.loads(queue.get(msg_id)["result"]["result"])
        assert figures["rows_in"] == 2
        assert message["made_from"] == {
            "queue": "words",
            "batch": msg_id,
            "messages": 1,
            "ids": [msg_id],
        }
        bad = prepared(queue, {"log": b"- - -\n-\n"})
        assert queue.ended(bad, seconds=PATIENCE)["status"].startswith("err - 2 of 2 l")
        figures = json.loads(queue.get(bad)["result"]["result"])
        assert (figures["rows_in"], figures["rejected"]) == (2, 2)
        assert figures["duckdb_us"] > 0


TABLE_JOB = """
from rq.spark import job

@job(engine="duckdb")
def run(q):
    q.expect(q.csv())
"""


def test_columns_that_a_job_has_inferred_are_kept_for_its_queue(tmp_path):
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin", "RQ_JAVA_HOME": "/nowhere"}
    settings = {"exec_prefix": "", "env_vars": env, "spark": {"threads": 1}}
    with running_queue(tmp_path, HEAD + TABLE_JOB, "sales", **settings) as queue:

        def end(data):
            msg_id = prepared(queue, {"a.csv": data})
            queue.ended(msg_id, seconds=PATIENCE)
            return queue.get(msg_id)

        kept = queue.root.path / "spark/schemas/sales/csv.json"
        assert end(b"id,id\n1,2\n")["status"].startswith("err - a.csv: ")
        assert not kept.exists()
        first = end(b"id,at\n1,2026-01-02\n2,\n")
        assert json.loads(first["result"]["result"])["rescued"] == 0
        assert json.loads(kept.read_text())["schema"] == "`id` bigint, `at` date"
        other = end(b"id,at\none,2026-01-02\n2,\n")
        figures = json.loads(other["result"]["result"])
        assert (figures["rows_in"], figures["rescued"]) == (2, 1)
        bad = end(b"id,when\n")["status"]
        assert bad.startswith("err - a.csv: it has no column 'at'")
        assert str(kept) in bad
