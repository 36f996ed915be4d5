"""What a job waits for is taken away: each row of the table of waits has its test."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading

import pytest
from harness.checkout import CHECKOUT
from harness.delta_jobs import Desk
from harness.queues import running_queue
from harness.spark_jobs import HEAD, job_settings, prepared
from harness.waiting import wait_until

from rq.errors import OutcomeUnknown, Unreachable
from rq.layout import Root
from rq.scripts.pipe import Verb
from rq.spark import delta, duck, jobs, remote, rounds, session, targets
from rq.spark.duck_tables import DuckTables
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job
from rq.spark.queue_door import Door, Target

PATIENCE = 120.0
# By how the first cell of each row begins: where it is taken away.
TESTS = {
    "an executor, also": "test_patience: without_executors_an_attempt_ends",
    "Spark's start": "test_waits: a_spark_that_does_not_start",
    "an executor that stands": "test_patience: an_executor_that_stands_still",
    "what `param1` names": "test_waits: a_host_without_a_byte",
    "a store": "test_waits: a_store_without_a_byte",
    "the log and the files": "test_waits: a_table_in_a_store_without_a_byte",
    "pip, and an index": "test_packages: a_pip_that_says_nothing",
    "a queue to which": "test_waits: a_queue_without_an_answer",
    "a sink of a stream": "test_waits: own_code_that_waits",
    "an agent on": "test_lease_work: an_agent_that_stands_still",
    "an owner that": "test_waits: an_owner_without_an_answer",
    "Java, told": "test_waits: a_java_that_does_not_end",
}


def test_each_row_of_the_table_has_a_test():
    text = (CHECKOUT / "docs/reference/spark.md").read_text("utf-8")
    table = text.partition("**What a job waits for**")[2].partition("\n\n**")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)[1:]
    assert len(rows) == len(TESTS)
    for row in rows:
        [where] = [TESTS[begin] for begin in TESTS if row.startswith(begin)]
        module, _, name = where.partition(": ")
        code = (CHECKOUT / "test/spark" / f"{module}.py").read_text("utf-8")
        assert f"\ndef test_{name}" in code, row


@pytest.fixture
def silent():
    """Give HOST:PORT of a service that takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening, held(listening):
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def held(listening):
    """Take all connections until the end, and answer nothing on any."""
    lines, ended = [], threading.Event()
    listening.settimeout(0.05)

    def take():
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                lines.append(listening.accept()[0])

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for line in lines:
            line.close()


@pytest.fixture
def silent_owner(tmp_path):
    """Give the root of a queue whose owner takes connections, and says nothing."""
    queue = Root(tmp_path).queue("asleep")
    queue.path.mkdir(parents=True)
    queue.config.write_text("{}")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(str(queue.socket))
        listening.listen()
        with held(listening):
            yield Root(tmp_path)


# ---- what messages name


def endings(tmp_path, where, allow):
    """Return how the messages of a batch end of which one names a place, and one not."""
    (tmp_path / "good/attach").mkdir(parents=True)
    (tmp_path / "good/attach/a.log").write_text("a line\n")
    messages = (
        Given("good", tmp_path / "good"),
        Given("away", tmp_path / "away", {"param1": where}),
    )
    batch = Batch("b", "logs", messages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(remote.VARIABLE, json.dumps(allow))
        patch.setenv("RQ_ROOT", str(tmp_path / "root"))
        tables = DuckTables(
            duck.session(duck.Limits("200MB", 2), [tmp_path / "good"]), 2
        )
        desk = Desk(tables)
        try:
            q = jobs.call(Job(lambda q: q.lines().toArrow()), batch, desk, messages)
        finally:
            tables.close()
    return q.endings


def test_a_host_without_a_byte_is_not_waited_for(silent, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "_PATIENCE", 0.3)
    ended = endings(tmp_path, f"http://{silent}/a.log", ["127.0.0.1"])
    assert {name: verb for name, (verb, _) in ended.items()} == {"away": Verb.RESEND}
    assert ended["away"][1].startswith("60-")


@pytest.mark.slow
def test_a_store_without_a_byte_is_not_waited_for(silent, tmp_path, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    monkeypatch.setattr(remote, "TRIES", 1)
    monkeypatch.setattr(remote, "SILENT", 1)
    end = f"?endpoint_override={silent}&scheme=http&region=us-east-1"
    allow = ["s3://logs/", silent]
    for kind, where in ("all", f"s3://logs/in/{end}"), ("one", f"s3://logs/a.log{end}"):
        ended = endings(tmp_path / kind, where, allow)
        assert {name: verb for name, (verb, _) in ended.items()} == {
            "away": Verb.RESEND
        }


def test_a_table_in_a_store_without_a_byte_is_not_waited_for(silent, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    for name in ("TRIES", "SILENT", "ANSWER"):
        monkeypatch.setattr(remote, name, 1)
    monkeypatch.setattr(
        targets.Target, "has_below", lambda *_: True
    )  # by delta-rs alone
    end = f"?endpoint_override={silent}&scheme=http&region=us-east-1"
    with pytest.raises(Unreachable, match=r"^s3://lake/orders: "):
        delta.load(f"s3://lake/orders{end}")


# ---- queues


def test_a_queue_without_an_answer_is_not_waited_for(silent_owner):
    target = Target(queue="asleep", url=None, root=str(silent_owner.path), timeout=0.5)
    with (
        contextlib.closing(Door(target)) as door,
        pytest.raises(OutcomeUnknown) as late,
    ):
        door.open("k")
    assert jobs.verdict(late.value)[0] is Verb.RESEND


def test_an_owner_without_an_answer_is_told_and_left_out(silent_owner, monkeypatch):
    monkeypatch.setattr(rounds, "_SEAL_PATIENCE", 0.3)
    assert rounds.seal(silent_owner) == ["asleep"]


# ---- the job's own code, and Java

SINK = """
import socket

@job(engine="duckdb")
def run(q):
    socket.create_connection(("127.0.0.1", int(q.messages[0]["param1"]))).recv(1)
"""


@pytest.mark.slow
def test_own_code_that_waits_has_the_limit_of_its_queue(silent, tmp_path, spark_env):
    settings = {**job_settings(tmp_path, spark_env), "timeout": 4}
    settings["spark"] = {"threads": 1}
    with running_queue(tmp_path, HEAD + SINK, "sinks", **settings) as queue:
        msg_id = prepared(queue, {}, param1=silent.partition(":")[2])
        assert queue.ended(msg_id, PATIENCE)["result"]["cause"] == "timeout"


JAVA = """#!/bin/sh
case "$*" in
    *-version) echo "    java.version = 17.0.9" ;;
    --list-modules) echo jdk.incubator.vector ;;
    *) exec cat > /dev/null ;;
esac
"""
START = """
from rq.spark import progress

progress._START = 0.5

@job
def run(q):
    q.spark.range(1).count()
"""


@pytest.mark.slow
def test_a_spark_that_does_not_start_is_not_waited_for(tmp_path, spark_env):
    java = tmp_path / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(JAVA)
    java.chmod(0o755)
    settings = job_settings(tmp_path, spark_env)
    settings["env_vars"] |= {"RQ_JAVA_HOME": str(tmp_path / "java")}
    settings["spark"]["patience"] = "1s"
    with running_queue(tmp_path, HEAD + START, "starts", **settings) as queue:
        msg_id = prepared(queue, {})
        waits = wait_until(lambda: counted(queue, msg_id), PATIENCE)
        assert waits["status"] == "que - 60-Spark has not started in 2 s"


def counted(queue, msg_id):
    """Return a message whose attempt has been counted."""
    message = queue.get(msg_id)
    return message if message["count"] == 1 and queue.state(msg_id) == "que" else None


def test_a_java_that_does_not_end_is_killed():
    words = [sys.executable, "-c", "import time; time.sleep(3600)"]
    java = subprocess.Popen(words, stdin=subprocess.PIPE)
    session._end(java, 0.3)
    assert java.returncode == -9


# ---- days of before

AFTER = """
@job(engine="duckdb")
def run(q):
    q.run("at work")
"""


def test_days_that_cannot_be_made_yet_hold_up_no_message(tmp_path, spark_env):
    settings = job_settings(tmp_path, spark_env) | {"spark": {"threads": 1}}
    days = Root(tmp_path).spark / "days/logs.sqlite"
    days.parent.mkdir(parents=True)
    days.write_text("no database, and longer than a header would be" * 9)
    with running_queue(tmp_path, HEAD + AFTER, "logs", **settings) as queue:
        msg_id = prepared(queue, {})
        assert queue.ended(msg_id, PATIENCE)["state"] == "done"
        log = queue.output(msg_id)
    assert "days that were decided before are not made yet: " in log
    assert "logs.sqlite" in log
