"""`q.write`: tables as Parquet files that readers see once, with the end of the batch."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from urllib.parse import quote

import duckdb as db
import pytest
from harness.delta_jobs import Desk
from harness.queues import running_queue
from harness.spark_jobs import DIES, HEAD, prepared, tools
from harness.waiting import wait_until
from pyarrow import dataset, fs

from rq.config import files
from rq.errors import BadInput, Unreachable
from rq.layout import Root
from rq.proc import locks
from rq.scripts.pipe import Verb
from rq.spark import duck, functions, jobs, sending, targets, trial, writes
from rq.spark.duck_tables import DuckTables
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job
from rq.spark.spark_tables import SparkTables
from rq.words.states import State

SECRET = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
}
HOSTILE = [
    "a/b",
    "..",
    "a=b",
    "ü +",
    "50%",
    "q\"'",
    "x:y?*[z]^{}",
    "#",
    " s ",
    "\n",
    "",
]


@pytest.fixture(params=["duckdb", "spark"])
def tables(request, tmp_path, monkeypatch):
    """Give tables on each engine."""
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    functions.F.use(request.param)
    if request.param == "spark":
        yield SparkTables(request.getfixturevalue("spark"))
    else:
        made = DuckTables(duck.session(duck.Limits("200MB", 2), []), 2)
        yield made
        made.close()
    functions.F.use(functions.SPARK)


def call(tables, function, messages=(), publish=True):
    """Call a job, and let what it has written be seen; return its `q`."""
    given = messages or (Given("m1", "nowhere"),)
    q = jobs.call(Job(function), Batch("b1", "logs", given), Desk(tables), given)
    if publish:
        q.writes.decide(sending.origin("logs", "b1", given))
        q.writes.publish()
    q.writes.close()
    return q


ROWS = """
SELECT * FROM (VALUES (1, 'a', DATE '2026-01-02', true), (2, 'a', DATE '2026-01-02', true),
(3, 'b', DATE '2026-01-02', false), (4, NULL, DATE '2026-01-03', false))
AS t(n, host, day, ok)
"""


def seen(place):
    """Return what three plain readers see of a directory: the same."""
    arrow = dataset.dataset(place, partitioning="hive").to_table().to_pylist()
    found = sorted(arrow, key=lambda row: row["n"])
    query = f"SELECT n FROM read_parquet('{place}/**/*.parquet') ORDER BY n"
    assert [n for (n,) in db.connect().sql(query).fetchall()] == [
        row["n"] for row in found
    ]
    return found


def listed(place):
    """Return the files of all manifests."""
    found = (json.loads(path.read_text()) for path in place.glob("_rq/*.json"))
    return sorted(file["file"] for one in found for file in one["files"])


def test_a_table_is_parted_and_seen_by_plain_readers(tables, tmp_path):
    out = tmp_path / "out"

    def job(q):
        q.write(q.spark.sql(ROWS), str(out), by=["day", "host"])
        assert seen_or_none(out) is None

    q = call(tables, job)
    rows = seen(out)
    assert [(row["n"], row["host"], row["ok"]) for row in rows] == [
        (1, "a", True),
        (2, "a", True),
        (3, "b", False),
        (4, None, False),
    ]
    folders = {str(path.parent.relative_to(out)) for path in out.rglob("*.parquet")}
    assert folders == {
        "day=2026-01-02/host=a",
        "day=2026-01-02/host=b",
        "day=2026-01-03/host=__HIVE_DEFAULT_PARTITION__",
    }
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*.parquet"))
    assert listed(out) == files
    assert [path.name for path in out.glob("_rq/*")] == [f"{q.writes._name}.json"]
    figures = json.loads(q.figures([]))
    assert figures["outputs"] == {str(out): 4}


def seen_or_none(place):
    return next(place.rglob("*.parquet"), None)


def test_values_cannot_leave_their_directory_and_come_back_as_they_were(
    tables, tmp_path, spark
):
    out = tmp_path / "out"

    def job(q):
        values = ", ".join(
            f"({n}, '{text.replace(chr(39), chr(39) * 2)}')"
            for n, text in enumerate(HOSTILE)
        )
        if tables.engine == "spark":
            made = q.spark.createDataFrame(list(enumerate(HOSTILE)), "n int, v string")
        else:
            made = q.spark.sql(f"SELECT * FROM (VALUES {values}) AS t(n, v)")
        q.write(made, f"file://{out}", by="v")

    call(tables, job)
    wanted = [text or None for text in HOSTILE]
    assert [row["v"] for row in seen(out)] == wanted
    assert all(len(path.relative_to(out).parts) == 2 for path in out.rglob("*.parquet"))
    rows = spark.read.parquet(str(out)).orderBy("n").collect()
    assert [row["v"] for row in rows] == wanted
    query = f"SELECT v FROM read_parquet('{out}/**/*.parquet', hive_partitioning=true)"
    assert {v for (v,) in db.connect().sql(query).fetchall()} == set(wanted)


def test_values_come_back_from_a_store_as_they_were(duck_tables, store):
    end, _ = store
    where = "logs/a b+ü"
    system, _ = fs.FileSystem.from_uri(f"s3://logs/{end}&allow_bucket_creation=true")
    system.create_dir("logs")
    values = ", ".join(
        f"({n}, '{text.replace(chr(39), chr(39) * 2)}')"
        for n, text in enumerate(HOSTILE)
    )

    def job(q):
        made = q.spark.sql(f"SELECT * FROM (VALUES {values}) AS t(n, v)")
        q.write(made, f"s3://{quote(where)}/{end}", by="v")

    call(duck_tables, job)
    found = dataset.dataset(where, filesystem=system, partitioning="hive").to_table()
    rows = {row["n"]: row["v"] for row in found.to_pylist()}
    assert rows == {n: text or None for n, text in enumerate(HOSTILE)}
    held = system.get_file_info(fs.FileSelector(where, recursive=True))
    assert sum(info.path.endswith(".parquet") for info in held) == len(HOSTILE)


# ---- what cannot be


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    functions.F.use(functions.DUCKDB)
    made = DuckTables(duck.session(duck.Limits("200MB", 2), []), 2)
    yield made
    made.close()
    functions.F.use(functions.SPARK)


@pytest.mark.parametrize(
    ("query", "by", "sentence"),
    [
        ("SELECT 1 AS n", ["x"], "there is no column 'x' to part by, only n"),
        ("SELECT 1 AS n", ["n"], "by names all columns"),
        ("SELECT 1 AS n, 2 AS m", ["m", "m"], "names a column twice"),
        ('SELECT 1 AS n, 2 AS "a/b"', ["a/b"], "cannot name directories: rename it"),
        ('SELECT 1 AS n, 2 AS "_a"', ["_a"], "cannot name directories: rename it"),
        ("SELECT 1 AS n, 1.5::DOUBLE AS m", ["m"], "m is of type double; tables are"),
        ("SELECT 1 AS n, repeat('x', 300) AS m", "m", "too long for the name of a dir"),
        ("SELECT 1 AS n, 'a' || chr(0) AS m", "m", "holds a zero byte"),
        (
            "SELECT 1 AS n, DATE '12000-01-01' AS m",
            "m",
            "cannot name a directory: date",
        ),
    ],
)
def test_how_a_table_cannot_be_parted_is_one_sentence(
    duck_tables, tmp_path, query, by, sentence
):
    out = tmp_path / "out"
    with pytest.raises(BadInput) as failed:
        call(
            duck_tables,
            lambda q: q.write(q.spark.sql(query), str(out), by),
            None,
            False,
        )
    assert sentence in str(failed.value)
    assert not out.exists() or left(out) == []


def left(place):
    """Return all files under a directory."""
    return [path for path in place.rglob("*") if path.is_file()]


def test_where_a_table_cannot_go_is_one_sentence(duck_tables, tmp_path, store):
    end, host = store
    (tmp_path / "file").touch()
    dead = end.replace(host, "127.0.0.1:1")
    for where, kind, sentence in (
        ("out", BadInput, "'out' is neither an absolute path nor s3://BUCKET/PREFIX/"),
        ("/a/../b", BadInput, "neither an absolute path"),
        ("hdfs://a/b", BadInput, "neither an absolute path"),
        (7, BadInput, "q.write: where=7 is not text"),
        (str(tmp_path / "file" / "x"), BadInput, "file/x: Not a directory"),
        ("/proc/x", BadInput, "/proc/x: "),
        (f"s3://none/x/{end}", BadInput, "s3://none/x/: there is no bucket none"),
        (f"s3://logs/x/{end}&x=1", BadInput, "?x= is not one of"),
        (f"s3://logs/x/{dead}", Unreachable, "s3://logs/x/: "),
    ):
        with pytest.raises(kind) as failed:
            call(
                duck_tables,
                lambda q, where=where: q.write(q.spark.sql("SELECT 1 AS n"), where),
                publish=False,
            )
        assert sentence in str(failed.value)


def naming(tables, tmp_path, where, *named):
    """Call a job that writes to a place, with a message for each text that is named."""
    fields = [text if isinstance(text, dict) else {"param2": text} for text in named]
    given = tuple(Given(f"m{n}", tmp_path, each) for n, each in enumerate(fields))

    def job(q):
        q.write(q.spark.sql("SELECT 1 AS n"), where)

    return call(tables, job, given, publish=False)


def test_a_message_does_not_choose_where_a_table_goes(
    duck_tables, tmp_path, store, monkeypatch
):
    end, host = store
    bucket, out = f"s3://logs/x/{end}", tmp_path / "out"
    system, _ = fs.FileSystem.from_uri(f"{bucket}&allow_bucket_creation=true")
    system.create_dir("logs")
    for where, named in (
        (str(out), str(out)),
        (str(out), f" file://{tmp_path}//./out/ "),
        (f"file://{out}/y", str(out)),
        (str(out), {"to": [{"deep": str(out)}]}),
        (str(out), {"param1": json.dumps({"deep": str(out)})}),
        (bucket, bucket),
        (f"s3://logs/x{end}", "S3://logs/x/"),
        (f"s3://logs/x%20y/z{end}", "s3://logs/x y/?region=auto"),
    ):
        # Whoever names it has failed; the others are written.
        q = naming(duck_tables, tmp_path, where, "plain", named, named)
        ended = {msg_id: verb for msg_id, (verb, _) in q.endings.items()}
        assert ended == {"m1": Verb.ERR, "m2": Verb.ERR}, named
        assert q.endings["m1"][1].startswith("q.write: ")
        assert [table.rows for table in q.writes.tables] == [1]
    # Unless the queue names the store.
    monkeypatch.setenv("RQ_SPARK_ALLOW", json.dumps(["s3://logs/x/", host]))
    q = naming(duck_tables, tmp_path, bucket, bucket)
    assert not q.endings
    assert q.writes.tables[0].rows == 1


def test_a_message_that_names_no_place_of_the_job_is_in_nobodys_way(
    duck_tables, tmp_path
):
    out = tmp_path / "out"
    named = ["/", "s3://", "file://", str(out)[:-1], f"{out}/x", {"dir": str(out)}]
    assert not naming(duck_tables, tmp_path, str(out), *named).endings


def test_a_store_that_does_not_tell_its_region_is_asked_later(monkeypatch):
    def away(_where, _may):
        raise OSError("When resolving region: AWS Error NETWORK_CONNECTION during Head")

    monkeypatch.setattr(targets.remote, "store", away)
    with pytest.raises(Unreachable, match=r"^s3://lake/x: When resolving"):
        targets.target("s3://lake/x?scheme=http")


def test_the_rows_of_two_tables_in_one_place_add_up(duck_tables, tmp_path):
    def job(q):
        for _ in range(2):
            q.write(q.spark.sql(ROWS), str(tmp_path / "out"))

    figures = json.loads(call(duck_tables, job).figures([]))
    assert figures["outputs"] == {str(tmp_path / "out"): 8}
    assert len(seen(tmp_path / "out")) == figures["rows_out"] == 8


def test_who_may_read_a_table_may_read_its_manifest(duck_tables, tmp_path):
    before = os.umask(0o022)
    try:
        call(duck_tables, one_row(tmp_path / "out"))
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".parquet", ".json"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o644}


def one_row(out):
    """Return a job that writes a row."""
    return lambda q: q.write(q.spark.sql("SELECT 1 AS n"), str(out))


def test_a_place_may_be_a_link(duck_tables, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to("disk")
    for by in ((), ("day", "ok")):
        call(
            duck_tables,
            lambda q, by=by: q.write(q.spark.sql(ROWS), str(tmp_path / "out"), by),
        )
    assert len(list((tmp_path / "disk/_rq").glob("*.json"))) == 2


def test_what_is_decided_has_its_names_after_a_power_cut(
    duck_tables, tmp_path, monkeypatch
):
    out, synced, sync = tmp_path / "out", set(), files.sync

    def noted(path):
        synced.add(path)
        sync(path)

    monkeypatch.setattr(files, "sync", noted)

    def job(q):
        q.write(q.spark.sql(ROWS), str(out), by=["day", "ok"])

    q = call(duck_tables, job, publish=False)
    staged = q.writes.tables[0].files
    top = out / "_rq" / q.writes.key / "0"
    wanted = {top / file.inner for file in staged}
    wanted |= {top / file.folder for file in staged}
    wanted |= {above for path in wanted for above in path.parents}
    assert synced >= {path for path in wanted if path.is_relative_to(out)}


# ---- several at once


def begun(duck_tables, out):
    """Return writes that have put a row, and decided nothing."""
    made = writes.Writes("logs", "b0")
    table = duck_tables.session.sql("SELECT 1 AS n")
    made.add(str(out), [], lambda stage: duck_tables.write(table, stage, made.listed))
    return made


def test_what_a_start_that_lives_will_decide_is_waited_for(duck_tables, tmp_path):
    first = begun(duck_tables, tmp_path / "out")
    found = []
    late = threading.Thread(
        target=lambda: found.append(writes.finish("logs", first.key))
    )
    late.start()
    wait_until(lambda: found or "-> FLOCK" in Path("/proc/locks").read_text())
    first.decide({})
    first.publish()
    first.close()
    late.join()
    assert found == [first.tables]
    assert writes.finish("logs", "none") is None


def test_what_was_decided_while_leftovers_were_looked_for_stays(
    duck_tables, tmp_path, monkeypatch
):
    first = begun(duck_tables, tmp_path / "out")
    free = locks.lock

    def decided_first(path):
        monkeypatch.setattr(locks, "lock", free)
        first.decide({})
        first.close()
        return free(path)

    monkeypatch.setattr(locks, "lock", decided_first)
    begun(duck_tables, tmp_path / "out").close()
    assert writes.finish("logs", first.key) == first.tables
    assert len(seen_rows(tmp_path / "out")) == 1


@pytest.mark.parametrize("age", [0.0, 30 * 86400.0])
def test_what_is_decided_is_finished_however_late(duck_tables, tmp_path, age):
    first = begun(duck_tables, tmp_path / "out")
    message = Given("m1", tmp_path / "m1")
    message.job.mkdir(parents=True)
    note = {"time": time.time() - age, "sent": [], "wrote": first.key}
    (message.job / sending.NOTE).write_text(json.dumps(note))
    first.decide({})
    first.close()  # its place is not there, say
    sender = sending.Sender(Root(tmp_path / "root"), "logs")
    again = Batch("b2", "logs", (message,))
    assert sender.sent_before(again)["m1"].wrote == first.tables
    assert len(seen_rows(tmp_path / "out")) == 1


def test_leftovers_that_another_start_removes_are_in_nobodys_way(
    duck_tables, tmp_path, monkeypatch
):
    left_there = begun(duck_tables, tmp_path / "out")
    free = locks.lock

    def removed_first(path):
        shutil.rmtree(path.parent, ignore_errors=True)
        return free(path)

    monkeypatch.setattr(locks, "lock", removed_first)
    begun(duck_tables, tmp_path / "out").close()
    left_there.close()


def test_what_could_not_be_removed_goes_with_the_memory_of_it(duck_tables, tmp_path):
    out = tmp_path / "out"
    key = call(duck_tables, one_row(out)).writes.key
    (out / "_rq" / key / "0").mkdir(parents=True)
    own = writes.above("logs") / key
    os.utime(own / "list.json", (1, 1))
    call(duck_tables, one_row(out))
    assert not own.exists()
    assert not (out / "_rq" / key).exists()
    assert len(seen_rows(out)) == 2


@pytest.mark.parametrize("state", [State.QUE, State.ERR, State.DONE])
def test_what_a_message_wrote_that_may_run_again_is_remembered(
    duck_tables, tmp_path, state
):
    out, queue = tmp_path / "out", Root(tmp_path / "root").queue("logs")
    msg_id = "20260101.0000.00.000.001"
    folder = queue.message(state, msg_id)
    message = Given(msg_id, folder)
    message.job.mkdir(parents=True)
    first = begun(duck_tables, out)
    note = {"time": time.time() - 30 * 86400.0, "sent": [], "wrote": first.key}
    (message.job / sending.NOTE).write_text(json.dumps(note))
    first.decide({}, [msg_id])
    first.publish()
    first.close()
    os.utime(writes.above("logs") / first.key / "list.json", (1, 1))
    begun(duck_tables, out).close()
    sender = sending.Sender(Root(tmp_path / "root"), "logs")
    before = sender.sent_before(Batch("b2", "logs", (message,)))
    assert (msg_id in before) is (state is not State.DONE)


def seen_rows(place):
    return dataset.dataset(place).to_table().to_pylist()


def test_a_job_that_fails_leaves_nothing(duck_tables, tmp_path):
    def job(q):
        q.write(q.spark.sql("SELECT 1 AS n"), str(tmp_path / "out"))
        raise KeyError("later")

    with pytest.raises(KeyError):
        call(duck_tables, job)
    assert left(tmp_path / "out") == []


def test_a_store_that_refuses_says_what_to_set():
    place = targets.Target("s3://b/", None, "b", is_store=True)
    error = OSError("AWS Error ACCESS_DENIED during PutObject operation: no")
    assert "AWS_…" in str(place.trouble(error))


# ---- tried without a queue

TRIED = """
@job(engine="duckdb")
def run(q):
    q.write(q.lines(), "s3://lake/logs/?region=eu-west-1", by="src")
"""


def test_what_is_tried_is_written_below_the_directory_of_results(tmp_path, monkeypatch):
    monkeypatch.setenv("RQ_ROOT", str(tmp_path / "root"))
    (tmp_path / "logs/web1").mkdir(parents=True)
    (tmp_path / "logs/web1/log").write_text("a\nb\n")
    (tmp_path / "run").write_text(HEAD + TRIED)
    said = []
    for _ in range(2):  # what an earlier try wrote is not there any more
        where = tmp_path / "run", tmp_path / "logs", tmp_path / "out"
        trial.run(*where, said.append, said.append)
        out = tmp_path / "out/written/lake/logs"
        [file] = out.rglob("*.parquet")
        assert file.parent == out / "src=web1"
        assert dataset.dataset(file).count_rows() == 2
    assert f"would write 2 rows, now in {out}" in said
    functions.F.use(functions.SPARK)


# ---- once, whatever is killed

DYING = """
dying(sending.Sender, "prepare", None, "noted")
dying(writes.Writes, "decide", None, "decided")
dying(writes, "_name", None, "named")
dying(targets.Target, "put", "unlisted", "listed")
dying(sending.Sender, "commit", "published", "committed")

@job(engine="duckdb")
def run(q):
    rows = q.lines().select("msg_id", "lineno", "line")
    q.write(rows, os.environ["OUT"], by="line")
    q.write(rows, os.environ["STORE"], by="line")
    q.send("box", param1=q.ids[0])
"""
BEFORE = ["begun", "staged", "noted"]
# After a decision an attempt is not begun again, so each of these needs a message.
AFTER = ["decided", "named", "unlisted", "listed", "published", "committed"]
POINTS = {"lone": [*BEFORE, *AFTER], "many": ["noted", "named"]}
PATIENCE = 300.0


def plain_rows(*places):
    """Return what a plain reader sees in each place, sorted."""
    found = []
    for path, system in places:
        if system.get_file_info(path).type is fs.FileType.NotFound:
            found.append([])
            continue
        table = dataset.dataset(path, filesystem=system, partitioning="hive").to_table()
        found.append(sorted((row["msg_id"], row["line"]) for row in table.to_pylist()))
    return found


def end(queue, msg_id, rows):
    """Retry a message until it is done; look each time it was killed."""
    while queue.ended(msg_id, PATIENCE)["state"] == "err":
        for found in rows():
            assert len(found) == len(set(found))
        queue.ok("retry_message", {"msg_id": msg_id})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lone", "many"])
def test_a_plain_reader_sees_each_row_once_whatever_is_killed(tmp_path, store, kind):
    query, _ = store
    out, where = tmp_path / "out", f"logs/{kind}"
    system, _ = fs.FileSystem.from_uri(f"s3://logs/{query}&allow_bucket_creation=true")
    system.create_dir("logs")
    env = {"PATH": f"{tools(tmp_path)}:/usr/bin:/bin", "OUT": str(out), **SECRET}
    env |= {"STORE": f"s3://{where}/{query}", "POINTS": " ".join(POINTS[kind])}
    batch = {"batch": {"max": 3, "wait": 1}} if kind == "many" else {}
    settings = {"exec_prefix": "", "env_vars": env, "num_workers": 1, **batch}

    def rows():
        return plain_rows((str(out), fs.LocalFileSystem()), (where, system))

    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "box") as box,
        running_queue(tmp_path, HEAD + DIES + DYING, "logs", **settings) as queue,
    ):
        log = {"log": b"a\nb\nc\nd\ne\n"}
        count = 3 if batch else len(AFTER)
        sent = [prepared(queue, log, max_count=99) for _ in range(count)]
        for msg_id in sent:
            end(queue, msg_id, rows)
        # One that comes later: what was decided of the first ones stays so.
        sent.append(prepared(queue, log))
        assert queue.ended(sent[-1], PATIENCE)["state"] == "done"
        died = {path.name.removeprefix("died-") for path in tmp_path.glob("died-*")}
        assert died == set(POINTS[kind])
        wanted = sorted((msg_id, word) for msg_id in sent for word in "abcde")
        assert rows() == [wanted, wanted]
        said = queue.get(sent[0])["status"]
        one = 15 if batch else 5
        assert f"wrote {one} rows to {out}; wrote {one} rows to s3://{where}/" in said
        boxed = box.ask("num_messages")
        assert sum(boxed.values()) - boxed["prep"] == (2 if batch else len(sent))
    check_left(tmp_path, system, where)


def check_left(root, system, where):
    """Nothing is left but files that have their names, and manifests."""
    assert [path for path in (root / "out/_rq").iterdir() if path.is_dir()] == []
    held = system.get_file_info(fs.FileSelector(f"{where}/_rq", recursive=True))
    assert all(info.path.endswith(".json") for info in held if info.is_file)
    for path in (root / "spark/writes/logs").iterdir():
        assert path.name == "lock" or (path / "done").is_file()
