"""A store that goes away at a step of a batch: when it is back, the rows are there once."""

from __future__ import annotations

import gc
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import delta_jobs
from harness.delta_jobs import add
from harness.delta_queue import start
from harness.store_gate import Gate
from harness.stored_tables import Lake

from rq.errors import BadInput, Unreachable
from rq.scripts.pipe import Verb
from rq.spark import (
    day_files,
    delta,
    delta_merge,
    jobs,
    remote,
    sending,
    staging,
    table_places,
    targets,
    writes,
)


@pytest.fixture
def gate(store):
    gate = Gate(store[1])
    yield gate
    gate.close()


@pytest.fixture
def lake(store, gate):
    return Lake(store, gate.host)


@pytest.fixture
def duck_tables(tmp_path, monkeypatch, lake):
    for name in ("TRIES", "SILENT", "ANSWER"):
        monkeypatch.setattr(remote, name, 1)
    monkeypatch.setenv(table_places.VARIABLE, lake.setting)
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


def added(q):
    q.table(q.spark.sql("SELECT n FROM range(9) AS t(n)"), "flights")


def replaced(q):
    query = "SELECT n, 'a' AS day FROM range(9) AS t(n)"
    q.table(q.spark.sql(query), "flights", by="day", mode="replace_by")


def merged(q):
    q.table(
        q.spark.sql("SELECT n FROM range(9) AS t(n)"), "flights", mode="merge", key="n"
    )


def promised(q):
    q.contract("flights", {"n": {"least": 4}})
    q.table(q.spark.sql("SELECT n FROM range(9) AS t(n)"), "flights")


JOBS = {"added": added, "replaced": replaced, "merged": merged, "promised": promised}
STEPS = {
    "begin": (writes.Writes, "_begin"),
    "files": (staging._Files, "end"),
    "footers": (delta, "plan"),
    "note": (sending.Sender, "prepare"),
    "decision": (writes.Writes, "decide"),
    "names": (writes, "_let_be_seen"),
    "commit": (delta, "_committed"),
    "end": (day_files, "note"),
}
# Inside of a commit: what a table is written by.
INSIDE = {
    "create": (delta, "_create"),
    "append": (delta, "_append"),
    "merge": (delta_merge, "merge"),
}
NEEDLESS = {"end"}  # which asks the store for nothing


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("job", "is_there"), [("added", False), *((job, True) for job in JOBS)]
)
def test_rows_are_there_once_when_the_store_is_back(
    duck_tables, tmp_path, lake, gate, job, step, is_there
):
    root = tmp_path / "root"
    if is_there:
        start(duck_tables, root, JOBS[job], "m0")
    ended = begin(duck_tables, root, JOBS[job], step, gate.shut)
    if step not in NEEDLESS:
        assert isinstance(ended, Unreachable)
        too_early = attempt(duck_tables, root, JOBS[job])
        assert isinstance(too_early, Unreachable)
    gate.open()
    for _ in range(2):
        start(duck_tables, root, JOBS[job])
    check(lake, job, is_there)


def begin(tables, root, job, step, act):
    """Let a queue start a job, and do something before a step of it; return what the
    attempt has ended with."""
    where, name = {**STEPS, **INSIDE}[step]
    does, passed = getattr(where, name), []

    def do(*of, **how):
        if not passed:
            passed.append(step)
            act()
        return does(*of, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, do)
        ended = attempt(tables, root, job)
    assert passed == [step]
    return ended


def attempt(tables, root, job):
    """Let a queue start a job; return what that has ended with. What failed keeps nothing
    of DuckDB, which each attempt of a queue has for itself."""
    ended = None
    try:
        start(tables, root, job)
    except (BadInput, Unreachable) as error:
        ended = type(error)(str(error))
    gc.collect()
    return ended


def check(lake, job, is_there):
    """The table has the rows of each message once, and nothing waits."""
    once = list(range(4, 9)) if job == "promised" else list(range(9))
    twice = is_there and job in ("added", "promised")
    assert lake.rows() == sorted(once * (1 + twice))
    if job == "promised":
        beside = lake.rows("value", "flights__rejected")
        assert beside == sorted([*"0123"] * (1 + twice))
    for path in writes.above("logs").iterdir():
        assert path.name == "lock" or (path / "done").is_file()


@pytest.mark.parametrize("way", ["shut", "be_still"])
@pytest.mark.parametrize(
    ("step", "job", "is_there"),
    [("create", "added", False), ("append", "added", True), ("merge", "merged", True)],
)
def test_a_store_that_goes_away_in_a_commit_is_waited_for(
    duck_tables, tmp_path, lake, gate, step, job, is_there, way
):
    root = tmp_path / "root"
    if is_there:
        start(duck_tables, root, JOBS[job], "m0")
    ended = begin(duck_tables, root, JOBS[job], step, getattr(gate, way))
    assert isinstance(ended, Unreachable)
    gate.open()
    start(duck_tables, root, JOBS[job])
    check(lake, job, is_there)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["files", "footers", "names", "commit"])
def test_a_store_that_says_nothing_is_not_waited_for(
    duck_tables, tmp_path, lake, gate, step
):
    root = tmp_path / "root"
    start(duck_tables, root, added, "m0")
    assert isinstance(begin(duck_tables, root, added, step, gate.be_still), Unreachable)
    gate.open()
    start(duck_tables, root, added)
    check(lake, "added", is_there=True)


def test_a_table_whose_store_goes_away_while_it_is_read_is_read_again(
    duck_tables, tmp_path, gate
):
    start(duck_tables, tmp_path / "root", added, "m0")

    def read(q):
        table = q.table_of("flights")
        gate.shut()
        table.toArrow()

    with pytest.raises(Exception, match="Generic S3 error") as failed:
        start(duck_tables, tmp_path / "root", read)
    verb, text = jobs.verdict(failed.value)
    assert verb is Verb.RESEND
    assert text.startswith("60-Generic S3 error")


def test_an_answer_that_is_lost_adds_no_row_twice(
    duck_tables, tmp_path, lake, monkeypatch
):
    """The commit is there, and the batch does not know it."""
    does = delta._append

    def unheard(*of):
        does(*of)
        raise Unreachable("the store is away")

    root = tmp_path / "root"
    start(duck_tables, root, added, "m0")
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(delta, "_append", unheard)
        with pytest.raises(Unreachable):
            start(duck_tables, root, added)
    start(duck_tables, root, added)
    check(lake, "added", is_there=True)


@pytest.mark.parametrize("step", ["files", "names", "commit"])
def test_a_bucket_that_is_missing_is_named(duck_tables, tmp_path, lake, step):
    root = tmp_path / "root"
    start(duck_tables, root, added, "m0")
    lake.empty()
    ended = begin(
        duck_tables, root, added, step, lambda: lake.system.delete_dir(lake.bucket)
    )
    words = "no such bucket", "no bucket", "somebody has removed"
    assert any(word in str(ended) for word in words)
    assert type(ended) is BadInput


# ---- rights

REFUSAL = b"""<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code>
<Message>no</Message><AWSAccessKeyId>key-of-tests</AWSAccessKeyId></Error>"""


class Refusing(BaseHTTPRequestHandler):
    """A store that refuses whatever is asked."""

    status = 403

    def _refuse(self):
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(REFUSAL)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(REFUSAL)

    do_GET = do_HEAD = do_PUT = do_POST = _refuse  # noqa: N815

    def log_message(self, *_of):
        pass


@pytest.fixture
def refusing():
    """Give the host of a store that refuses all."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_store_that_has_too_much_to_do_is_asked_again_later(
    refusing, monkeypatch, status
):
    monkeypatch.setattr(Refusing, "status", status)
    monkeypatch.setattr(remote, "TRIES", 1)
    monkeypatch.setattr(targets.Target, "has_below", lambda *_: True)
    end = f"?endpoint_override={refusing}&scheme=http&region=us-east-1"
    words = rf"^s3://lake/flights: Server returned .* {status} "
    with pytest.raises(Unreachable, match=words):
        delta.load(f"s3://lake/flights{end}")


@pytest.mark.parametrize("by_delta", [True, False])
def test_wrong_rights_are_one_sentence_without_them(
    duck_tables, refusing, monkeypatch, by_delta
):
    end = f"?endpoint_override={refusing}&scheme=http&region=us-east-1"
    monkeypatch.setenv(table_places.VARIABLE, f"s3://lake/x/{end}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    if by_delta:
        monkeypatch.setattr(targets.Target, "demand", lambda _: None)
        monkeypatch.setattr(targets.Target, "has_below", lambda *_: True)
        monkeypatch.setattr(delta, "plan", lambda goal, *_: delta.load(goal.where))
    with pytest.raises(BadInput, match="the store refuses it: the rights") as refused:
        add(duck_tables, "SELECT 1 AS n WHERE false")
    assert "key-of-tests" not in str(refused.value)
    assert "very-secret" not in str(refused.value)
