"""What jobs are made of: lines from anywhere, columns, files of results, progress."""

from __future__ import annotations

import bz2
import codecs
import gzip
import http.server
import itertools
import json
import lzma
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import h11
import orjson
import pyarrow as pa
import pytest
from harness import cli
from harness.checkout import CHECKOUT
from harness.limits import no_descriptors
from harness.waiting import wait_until
from pyarrow import parquet

from rq.errors import BadInput, Unreachable
from rq.spark import (
    arguments,
    attachments,
    compression,
    file_parts,
    given,
    jobs,
    layouts,
    parsing,
    progress,
    remote,
    results,
    spark_tables,
    work,
)
from rq.spark.attachments import File
from rq.spark.given import Given
from rq.spark.progress import Alone, OnSpark, Progress, is_alone

PATIENCE = 90.0
HERE = ["127.0.0.1"]  # what a queue of these tests may fetch
LINES = ["one", "", "zwei ü", "three\tend"]
TEXT = "\n".join(LINES).encode()
KINDS = {
    "plain": lambda data: data,
    "gzip": gzip.compress,
    "two.gz": lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:]),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "two.zst": lambda data: KINDS["zstd"](data[:5]) + KINDS["zstd"](data[5:]),
    "windows": lambda data: data.replace(b"\n", b"\r\n"),
    "marked": lambda data: codecs.BOM_UTF8 + data,
    "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-16-be": lambda data: data.decode().encode("utf-16-be"),
    "utf-16-le": lambda data: data.decode().encode("utf-16-le"),
    "utf-32.gz": lambda data: gzip.compress(data.decode().encode("utf-32")),
    "padded.bz2": lambda data: bz2.compress(data) + bytes(700),
    "padded.xz": lambda data: (
        lzma.compress(data[:9]) + lzma.compress(data[9:]) + bytes(8)
    ),
}


def rows(frame):
    return [tuple(row) for row in frame.collect()]


@pytest.fixture
def site(tmp_path):
    """Give the address of a server of a directory."""
    (tmp_path / "site").mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "site"))

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_lines_come_from_files_of_every_kind_and_from_the_web(spark, tmp_path, site):
    folder = tmp_path / "m1"
    (folder / "attach").mkdir(parents=True)
    for name, packed in KINDS.items():
        (folder / "attach" / name).write_bytes(packed(TEXT))
    (folder / "attach" / "empty").touch()
    (tmp_path / "site" / "log.gz").write_bytes(gzip.compress(TEXT + b"\n"))
    url = f"{site}/log.gz"
    messages = [
        Given("m1", folder, {"src": "web1", "param1": "no address"}),
        Given("m2", tmp_path / "m2", {"param1": url}),
    ]
    found = rows(spark_tables.rows(spark, attachments.files(messages, HERE), HERE))
    wanted = {("m1", "web1", name) for name in KINDS} | {("m2", "", url)}
    assert sorted(found) == sorted(
        (*of, number, line) for of in wanted for number, line in enumerate(LINES, 1)
    )


def test_a_file_that_cannot_be_read_is_named(spark, tmp_path):
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(TEXT * 100)[:-9])
    file = File("m1", "", "broken.gz", str(broken), 10)
    with pytest.raises(Exception, match=r"broken\.gz") as failed:
        spark_tables.rows(spark, [file]).count()
    bad = attachments.unreadable(failed.value)
    assert (bad.msg_id, bad.is_passing) == ("m1", False)
    assert bad.why.startswith("broken.gz: Compressed file ended")
    assert attachments.unreadable(ValueError("BadInput")) is None


class Torn(http.server.BaseHTTPRequestHandler):
    """Hangs up in the middle."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"half a li")

    def log_message(self, *_):
        pass


def spoiled(data):
    """Return data with some bytes in its middle changed."""
    at = len(data) // 2
    return (
        data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 40]) + data[at + 40 :]
    )


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zstd", "http", "long"])
def test_whatever_is_wrong_with_a_file_is_told_of_that_file(
    tmp_path, monkeypatch, kind
):
    monkeypatch.setattr(attachments, "_LONGEST", 100)
    monkeypatch.setattr(attachments, "_BLOCK", 64)
    where = tmp_path / "log"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Torn) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            if kind == "http":
                where = f"http://127.0.0.1:{server.server_port}/log"
            elif kind == "long":
                where.write_bytes(b"x" * 1000)
            else:
                where.write_bytes(
                    spoiled(KINDS[kind](os.urandom(20_000).hex().encode()))
                )
            error = Unreachable if kind == "http" else BadInput
            file, may = File("m1", "", "a log", str(where), 1), remote.allow(HERE)
            with pytest.raises(error, match=r"^\[m1\] a log: .+"):
                list(attachments.batches(file, may))
            [row] = next(attachments.checked(file, may)).to_pylist()
            assert row["passing"] is (kind == "http")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zstd"])
@pytest.mark.parametrize("rest", [b"garbage", b"x" * 200_000])
def test_bytes_behind_the_end_of_what_is_compressed_make_it_no_file(
    tmp_path, kind, rest
):
    (tmp_path / "log").write_bytes(KINDS[kind](TEXT * 9) + rest)
    file = File("m1", "", "a log", str(tmp_path / "log"), 1)
    with pytest.raises(BadInput, match=r"^\[m1\] a log: .+"):
        list(attachments.batches(file, remote.allow([])))


def test_a_large_file_is_cut_only_where_a_newline_is_one_byte(tmp_path):
    for encoding in ("utf-8", "utf-16"):
        path = tmp_path / encoding
        path.write_bytes(("a line\n" * 1000).encode(encoding))
        file = File("m1", "", "log", str(path), path.stat().st_size)
        parts = file_parts.parted([file], layouts.LINES, 512)
        assert (len(parts) > 1) is (encoding == "utf-8")
        lines = [
            row["line"]
            for part in parts
            for batch in attachments.batches(part, remote.allow([]))
            for row in batch.to_pylist()
        ]
        assert lines == ["a line"] * 1000


def test_files_are_shared_out_by_size():
    found = [File("m", "", str(size), "", size) for size in (9, 1, 8, 2, 5, 5)]
    groups = attachments.grouped(found, 3)
    assert sorted(sum(file.size for file in group) for group in groups) == [10, 10, 10]
    assert attachments.grouped(found, 100)
    assert len(attachments.grouped(found, 100)) == 6
    assert attachments.grouped([], 4) == [[]]


COMBINED = (
    '1.2.3.4 - bob [02/Jan/2026:03:04:05 +0100] "GET /a?b=c HTTP/1.1" 503 17 '
    '"http://from/" "with \\"quotes\\""'
)


def test_parsing_gives_columns_and_keeps_what_does_not_fit(spark):
    lines = [COMBINED, "garbage", COMBINED.replace("17", "-"), ""]
    frame = spark.createDataFrame([(line,) for line in lines], "line string")
    fitting, parsed = parsing.split(frame, "combined")
    first, second = sorted(fitting.collect(), key=lambda row: row["bytes"] is None)
    assert first.asDict() == {
        "host": "1.2.3.4",
        "ident": "-",
        "user": "bob",
        "time": first["time"],
        "method": "GET",
        "url": "/a?b=c",
        "protocol": "HTTP/1.1",
        "status": 503,
        "bytes": 17,
        "referer": "http://from/",
        "agent": 'with \\"quotes\\"',
        "malformed": False,
    }
    assert first["time"].timestamp() == 1767319445
    assert second["bytes"] is None
    assert sorted(row["line"] for row in parsed.rejects.collect()) == ["", "garbage"]
    own, _ = parsing.split(frame, r"^(?P<a>\d+)\.(?P<b>\d+)")
    assert rows(own) == [("1", "2"), ("1", "2")]


@pytest.mark.parametrize("form", ["no groups", "(?P<x>", "combine"])
def test_a_form_that_cannot_be_used_is_refused(form):
    with pytest.raises(BadInput):
        parsing.split(None, form)


def test_an_expression_that_java_refuses_is_named(spark):
    """And none of those is that Python and Java write alike, whatever its groups are called."""
    frame = spark.createDataFrame([("0700 0700 b",)], "line string")
    with pytest.raises(BadInput, match=r"'\(\?P<n>a\).*those of Java: Unknown inline"):
        parsing.split(frame, "(?P<n>a)?(?(n)b|c)")
    again = r"^(?P<dep_time>\d+) (?P=dep_time) (?P<_b>\w)"
    assert rows(parsing.split(frame, again)[0]) == [("0700", "b")]


def test_results_are_written_as_their_name_says(spark, tmp_path):
    frame = spark.createDataFrame([(1, "a,b"), (2, "ü")], "n int, t string")
    results.write(frame, tmp_path / "r.csv.gz")
    text = gzip.decompress((tmp_path / "r.csv.gz").read_bytes()).decode()
    assert text == '"n","t"\n1,"a,b"\n2,"ü"\n'
    results.write(frame, tmp_path / "r.tsv")
    assert (tmp_path / "r.tsv").read_text().splitlines()[0] == '"n"\t"t"'
    results.write(frame, tmp_path / "r.jsonl.zst")
    with compression.opened(str(tmp_path / "r.jsonl.zst")) as stream:
        found = [json.loads(line) for line in stream.read().splitlines()]
    assert found == [{"n": 1, "t": "a,b"}, {"n": 2, "t": "ü"}]
    results.write(frame, tmp_path / "r.parquet")
    assert parquet.read_table(tmp_path / "r.parquet").to_pylist() == found
    with pytest.raises(BadInput, match="written as one of"):
        results.write(frame, tmp_path / "r.xls")
    with pytest.raises(BadInput):
        results.write("text", tmp_path / ".hidden")


def test_the_last_line_of_an_error_in_a_python_worker_is_its_own(spark):
    def divide(batches):
        for _ in batches:
            yield 1 // 0

    with pytest.raises(Exception, match="ZeroDivisionError") as failed:
        spark.range(1).mapInArrow(divide, "id long").count()
    assert jobs.last_line(failed.value).startswith("ZeroDivisionError: ")


def test_progress_is_told_when_it_changes_and_twice_a_second_at_most(spark):
    told = []

    def slow(batches):
        time.sleep(0.6)
        yield from batches

    def done():
        assert told
        tasks = re.search(r"(\d+)/(\d+) tasks", told[-1][1])
        return int(tasks[1])

    looking = Progress(lambda text: told.append((time.monotonic(), text)), told.append)
    looking.watch(OnSpark(spark))
    looking.start()
    try:
        spark.range(0, 8, 1, 8).mapInArrow(slow, "id long").count()
        wait_until(lambda: told and done() >= 8, PATIENCE)
    finally:
        looking.stop()
    texts = [text for _, text in told]
    assert len(texts) >= 2
    assert all(one != other for one, other in itertools.pairwise(texts))
    assert all(re.match(r"\d+/\d+ stages, \d+/\d+ tasks", text) for text in texts)
    times = [at for at, _ in told]
    assert all(b - a > 0.45 for a, b in itertools.pairwise(times))


def test_a_job_that_no_executor_comes_for_says_so_after_30_seconds(spark):
    alone = Alone(120.0)
    assert [alone.text(True, now) for now in (5.0, 34.9)] == ["", ""]
    assert alone.text(True, 35.1).startswith("no executor for 30 s: ")
    assert alone.text(True, 66.0).startswith("no executor for 60 s: ")
    assert alone.text(True, 66.0).endswith("in 60 s this attempt ends")
    assert alone.over(124.9) == ""
    assert alone.over(125.0).startswith("no executor for 120 s: ")
    assert alone.text(False, 67.0) == alone.text(True, 68.0) == ""
    assert alone.over(180.0) == ""
    assert not is_alone(spark)


class Slow:
    """What is looked at for longer than its job takes."""

    def __init__(self, over=""):
        self.looking, self.end = threading.Event(), threading.Event()
        self._over = over

    def far(self):
        self.looking.set()
        if not self._over:
            self.end.wait(PATIENCE)
        return "half way"

    def over(self):
        return self._over

    def cancel(self):
        pass


def test_what_is_looked_at_when_a_job_ends_is_not_said_behind_its_end(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    told, watched = [], Slow()
    looking = Progress(told.append, told.append)
    looking.watch(watched)
    looking.start()
    assert watched.looking.wait(PATIENCE)
    looking.stop()
    watched.end.set()
    looking._thread.join(PATIENCE)
    assert told == []


def test_a_job_that_does_not_notice_that_it_was_given_up_is_left(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.1)
    left = []
    looking = Progress(lambda _: None, left.append)
    looking.watch(Slow(over="no executor"))
    looking.start()
    wait_until(lambda: left, PATIENCE)
    looking.stop()
    assert left[0] == looking.given_up == "no executor"


@pytest.mark.parametrize(
    ("delay", "number"), [(30, 30), ("30", 30), ("30s", 30), ("1.5m", 90), ("2h", 7200)]
)
def test_a_delay_is_told_in_words_of_time(delay, number):
    assert arguments.seconds(delay) == number


@pytest.mark.parametrize("delay", ["", "soon", "-1", "5 minutes"])
def test_what_is_no_delay_is_refused(delay):
    with pytest.raises(BadInput):
        arguments.seconds(delay)


class Nowhere:
    """The outlet of a job that says nothing."""

    def say(self, verb, text):
        pass


def test_files_of_one_name_go_with_their_own_messages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    batch = given.Batch("b", "q", (Given("m1", tmp_path),))
    q = work.Work(batch, Nowhere(), batch.messages)
    for text in ("one", "two"):
        q.attach(text, "result.txt")
        q.send("deliver")
    assert [one.files[0].read_text() for one in q.letters] == ["one", "two"]
    assert {one.files[0].name for one in q.letters} == {"result.txt"}
    q.attach("three", "result.txt")
    with pytest.raises(BadInput, match="attached to the next message already"):
        q.attach("four", "result.txt")


# ---- without a queue

TRIED = """
from rq.spark import job

@job
def run(q):
    q.attach(f"{len(q.messages)} from {q.messages[0].src}", "count.txt")
    q.err(q.ids[-1], "the last one")
    q.resend(q.ids[:1], "5m", "the first one")
    q.send("deliver", param1="there")
"""


def tried(tmp_path, *words):
    script = tmp_path / "job.py"
    script.write_text(TRIED)
    words = ("spark", "try", script, "--out", tmp_path / "out", *words)
    return cli.rq(*words, root=tmp_path / "root")


def test_a_job_can_be_tried_on_folders_without_a_daemon(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / "queue/que" / name / "attach").mkdir(parents=True)
        (tmp_path / "queue/que" / name / "msg").write_text('{"src": "web1"}')
    ended = tried(tmp_path, "--messages", tmp_path / "queue")
    assert ended.returncode == 8, ended.stderr
    assert (tmp_path / "out/results/count.txt").read_text() == "3 from web1"
    for text in (
        "msg c err the last one",
        "msg a resend 300-the first one",
        'would send to deliver {"param1": "there"}',
        "done, 1 message",
    ):
        assert text in ended.stdout
    assert not (tmp_path / "queue/que/a/job").exists()


def test_a_job_is_tried_with_no_results_of_an_earlier_try(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/log").write_text("a line\n")
    own = tmp_path / "out/results"
    own.mkdir(parents=True)
    (own / "thesis.tex").touch()
    ended = tried(tmp_path, "--messages", tmp_path / "logs")
    assert ended.returncode == 2
    assert "is not of an earlier try: name another directory by --out" in ended.stderr
    (own / "thesis.tex").rename(tmp_path / "thesis.tex")
    own.rmdir()
    assert tried(tmp_path, "--messages", tmp_path / "logs").returncode == 8
    (own / "of-an-earlier-script.csv").touch()
    assert tried(tmp_path, "--messages", tmp_path / "logs").returncode == 8
    assert [path.name for path in own.iterdir()] == ["count.txt"]


def test_plain_files_can_be_tried_as_if_each_were_a_message(tmp_path):
    for host in ("web1", "web2"):
        (tmp_path / "logs" / host).mkdir(parents=True)
        (tmp_path / "logs" / host / "log").write_text("a line\n")
    ended = tried(tmp_path, "--messages", tmp_path / "logs")
    assert ended.returncode == 8, ended.stderr
    assert (tmp_path / "out/results/count.txt").read_text() == "2 from web1"


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("x = 1", 2, "0 functions with @job"),
        ("from rq.spark import job\n@job\ndef run(q): 1 / 0", 8, "ZeroDivisionError"),
        ("from rq.spark import job\n@job\ndef run(q): q.rejects", 8, "q.parse"),
        ("from rq.spark import job\n@job\ndef run(q): exit('no')", 8, "err no"),
        (
            "from rq.spark import job\n@job(engine='duckdb')\ndef run(q): q.lines()",
            8,
            "is no UTF-8",
        ),
    ],
)
def test_what_is_wrong_with_a_job_is_said_in_one_sentence(tmp_path, script, code, says):
    (tmp_path / "job.py").write_text(script)
    (tmp_path / "logs").mkdir()
    Path(os.fsdecode(bytes(tmp_path / "logs") + b"/caf\xe9")).touch()
    words = (tmp_path / "job.py", "--messages", tmp_path / "logs", "--out", tmp_path)
    ended = cli.rq("spark", "try", *words, root=tmp_path / "root")
    assert ended.returncode == code
    assert says in (ended.stderr or ended.stdout).splitlines()[-1]


def test_the_launcher_of_jobs_says_how_it_is_used():
    ended = subprocess.run(
        [CHECKOUT / "bin/rq-spark"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "#!/usr/bin/env rq-spark" in ended.stderr


@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ({}, "pyspark, pandas, pyarrow not installed: run `rq up --spark`"),
        (
            {"RQ_SPARK_ENGINE": "duckdb"},
            "duckdb, pyarrow not installed: run `rq up --d",
        ),
    ],
)
def test_without_spark_the_queue_is_told_how_to_get_it(tmp_path, engine, told):
    reader, writer = os.pipe()
    # Without site-packages nothing is there but what is put there.
    for package in (h11, orjson):
        place = Path(package.__file__).parent
        (tmp_path / place.name).symlink_to(place)
    script = tmp_path / "job.py"
    script.write_text("from rq.spark import job\n@job\ndef run(q): pass\n")
    env = {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}",
        "RQ_ROOT": str(tmp_path),
        "RQ_MSG_DIR": str(tmp_path / "m" / "job"),
        "RQ_MSG_ID": "m",
        "RQ_FULL_MSG_ID": "http://h/q/logs/m",
        "RQ_WRITE": str(writer),
        **engine,
    }
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "rq.spark", str(script)],
        env=env,
        pass_fds=(writer,),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    with open(reader) as pipe:
        said = pipe.read()
    assert ended.returncode == 1
    assert said.startswith(f"err {told}")
    assert said.endswith("\n")
    assert "Traceback" not in ended.stderr


def test_a_job_without_a_queue_points_to_rq_spark_try():
    with pytest.raises(BadInput, match="rq spark try"):
        given.from_queue({})
    assert given.from_queue(
        {"RQ_MSG_ID": "1", "RQ_MSG_DIR": "/r/q/run/1/job", "RQ_FULL_MSG_ID": "h/q/n/1"}
    ).messages[0].folder == Path("/r/q/run/1")


def test_a_message_that_cannot_be_read_now_is_not_said_to_say_nothing(tmp_path):
    (tmp_path / "msg").write_text('{"dest": "q", "src": "s"}')
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        given._fields(tmp_path)
    assert given._fields(tmp_path)["src"] == "s"
