"""What breaks under a job is not the job's fault: it is counted, and tried again."""

from __future__ import annotations

import contextlib
import subprocess
import types

import pytest
from harness.queues import running_queue
from harness.spark_jobs import HEAD, job_settings, prepared
from harness.waiting import wait_until

from rq.spark import failures, jobs, machine
from rq.spark.machine import Engine

PATIENCE = 300.0  # seconds for what starts a JVM, on a busy machine
HERE = Engine("local[2]", "768m")
BREAK = """
import os
from pathlib import Path

from pyspark import SparkContext

@job
def run(q):
    mark = Path(os.environ["RQ_ROOT"]) / q.messages[0]["param1"]
    rows = q.spark.range(10)
    if not mark.exists():
        mark.touch()
        if mark.name == "killed":
            os.kill(SparkContext._gateway.proc.pid, 9)
        elif mark.name == "full":
            gateway = SparkContext._gateway
            gateway.new_array(gateway.jvm.long, 500_000_000)
        else:
            raise SystemExit("give me better data")
    q.run(f"{rows.count()} rows")
"""


@pytest.fixture
def queue(tmp_path, spark_env):
    with contextlib.ExitStack() as stack:
        settings = {**job_settings(tmp_path, spark_env), "num_workers": 1}
        yield stack.enter_context(
            running_queue(tmp_path, HEAD + BREAK, "fragile", **settings)
        )


def back_in_que(queue, msg_id):
    message = queue.get(msg_id)
    return message if message["count"] == 1 and queue.state(msg_id) == "que" else None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("killed", "Java was ended by KILL, it had 768m of memory: unless somebody"),
        ("full", "Java ran out of memory, it had 768m: give it more, in the queue's"),
    ],
)
def test_a_job_whose_java_ends_is_tried_again(queue, how, why):
    msg_id = prepared(queue, {}, param1=how)
    waits = wait_until(lambda: back_in_que(queue, msg_id), PATIENCE)
    assert why in waits["status"]
    queue.ok("run_message", {"msg_id": msg_id})
    assert queue.ended(msg_id, seconds=PATIENCE)["status"].startswith("done")


def test_what_a_job_says_when_it_leaves_is_kept(queue):
    msg_id = prepared(queue, {}, param1="gives up")
    assert (
        queue.ended(msg_id, seconds=PATIENCE)["status"] == "err - give me better data"
    )


@pytest.mark.parametrize("code", [None, 0, 3, " "])
def test_a_job_that_leaves_without_a_word_has_failed(code):
    assert jobs.of_exit(code).startswith("the job has left by sys.exit(")


def test_the_last_cause_is_the_sentence(spark):
    from pyspark.sql.functions import col

    with pytest.raises(Exception) as failed:  # noqa: PT011 - of whatever class
        spark.createDataFrame([("a",)], "t string").where(
            col("t").rlike("(?<a_b>x")
        ).count()
    assert "named capturing group" in jobs.last_line(failed.value)
    text = "Exception thrown in awaitResult: \n\tat x\nCaused by: java.lang.Error: a\n"
    text += "\tat y\nCaused by: java.io.EOFException: b: c\n\tat z"
    assert failures.cause(RuntimeError(text)) == "EOFException: b: c"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "Application is killed: All masters are unresponsive! Giving up.",
            "the Spark ",
        ),
        ("x: Cannot call methods on a stopped SparkContext.", "the Spark master local"),
        ("Job aborted: ExecutorLostFailure (executor 1 exited)", "executors of local"),
        ("java.io.IOException: No space left on device", "the disk is full"),
        (
            "SparkException: Python worker failed to connect back.",
            "Python did not start",
        ),
    ],
)
def test_what_broke_under_a_job_is_named(text, why):
    broken = machine.failure(RuntimeError(text), HERE)
    assert broken is not None
    assert broken.startswith(why)


@pytest.mark.parametrize(
    "text",
    [
        "An error occurred while calling o129.count",
        "Error while sending or receiving",
        "Answer from Java side is empty",
    ],
)
def test_a_java_that_is_cut_off_is_waited_for(monkeypatch, text):
    """Java of a gigabyte takes a moment to end; until then it seems to run."""
    java = subprocess.Popen(["sh", "-c", "sleep 0.5; kill -9 $$"])
    gateway = types.SimpleNamespace(proc=java)
    monkeypatch.setattr("pyspark.SparkContext._gateway", gateway)
    broken = machine.failure(RuntimeError(text), HERE)
    assert broken is not None
    assert broken.startswith("Java was ended by KILL")


def test_an_error_of_the_job_is_its_own():
    assert machine.failure(ValueError("no such column"), HERE) is None
