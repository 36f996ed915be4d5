"""A job that stays: message after message on a Spark that is warm."""

from __future__ import annotations

import os

import pytest
from harness.queues import running_queue
from harness.spark_jobs import HEAD, job_settings, prepared
from harness.waiting import wait_until

PATIENCE = 300.0  # seconds for what starts a JVM, on a busy machine
JOB = """
import os, sys
from pyspark import SparkContext

@job
def run(q):
    what = q.messages[0]["param1"]
    assert q.lines().count() == 1
    assert "LEFT" not in os.environ
    os.environ["LEFT"] = os.environ.pop("RQ_SRC", "a job may do so")
    rows = q.spark.range(int(what) if what.isdigit() else 5).cache()
    number = rows.count()
    views = [table.name for table in q.spark.catalog.listTables()]
    rows.createOrReplaceTempView("mine")
    rows.createGlobalTempView("everybodys")
    q.spark.conf.set("spark.sql.shuffle.partitions", "7")
    if what == "fails":
        raise ValueError("of the job")
    if what == "breaks":
        q.run("breaks")
        os.kill(SparkContext._gateway.proc.pid, 9)
        q.spark.range(10).count()
    q.attach(f"{number} {views} {SparkContext._gateway.proc.pid} {os.getcwd()}", "told")
    q.send("box")
    print("worked on", what)
    q.spark.stop()
"""


@pytest.fixture
def queue(tmp_path, spark_env):
    settings = {**job_settings(tmp_path, spark_env), "num_workers": 1}
    settings["worker"] = "persistent"
    settings["spark"] = {**settings["spark"], "idle": "6s"}
    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "box") as box,
        running_queue(tmp_path, HEAD + JOB, "warm", **settings) as warm,
    ):
        warm.box = box
        yield warm


BATCH = """
from pyspark import SparkContext

@job
def run(q):
    assert q.lines().count() == 2
    q.err([m.msg_id for m in q.messages if m["param1"] == "bad"], "a bad one")
    q.attach(f"{len(q.ids)} {SparkContext._gateway.proc.pid}", "told")
    q.send("box")
"""


@pytest.mark.slow
def test_batches_on_a_spark_that_is_warm(tmp_path, spark_env):
    """One Java for all; what ends alone ends so, and the process goes on."""
    settings = {**job_settings(tmp_path, spark_env), "num_workers": 1}
    settings |= {"worker": "persistent", "batch": {"max": 2, "wait": 3600}}
    with (
        running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "box"),
        running_queue(tmp_path, HEAD + BATCH, "warm", **settings) as queue,
    ):
        states = []
        for words in (("a", "a"), ("bad", "a"), ("bad", "bad"), ("a", "a")):
            ids = [prepared(queue, {"a": b"line"}, param1=what) for what in words]
            ended = [queue.ended(msg_id, seconds=PATIENCE) for msg_id in ids]
            states.append([entry["status"].partition(" ")[0] for entry in ended])
        assert states == [["done"] * 2, ["err", "done"], ["err"] * 2, ["done"] * 2]

        def results():
            files = tmp_path.glob("queue/box/done/**/attach/told")
            return [file.read_text() for file in files]

        wait_until(lambda: len(results()) == 3, PATIENCE)
        texts = results()
        assert sorted(text.split()[0] for text in texts) == ["1", "2", "2"]
        assert len({text.split()[1] for text in texts}) == 1


def told(queue, param1):
    """Let a message be worked on; return the text of what it sends."""
    before = set(queue.box.root.path.glob("queue/box/done/**/attach/told"))
    msg_id = prepared(queue, {"a": b"line"}, param1=param1)
    assert queue.ended(msg_id, seconds=PATIENCE)["status"].startswith("done")

    def new():
        return set(queue.box.root.path.glob("queue/box/done/**/attach/told")) - before

    return wait_until(new, PATIENCE).pop().read_text()


@pytest.mark.slow
def test_a_job_that_stays(queue):
    """One Java for all messages; nothing of a message is there for the next one."""
    number, views, java, place = told(queue, "3").split(" ")
    assert (number, views) == ("3", "[]")
    assert place.endswith("/job")
    assert told(queue, "4").split(" ")[:3] == ["4", "[]", java]

    failed = prepared(queue, {"a": b"line"}, param1="fails")
    assert (
        queue.ended(failed, seconds=PATIENCE)["status"]
        == "err - ValueError: of the job"
    )
    assert told(queue, "5").split(" ")[2] == java

    wait_until(lambda: not os.path.exists(f"/proc/{java}"), PATIENCE)  # idle
    assert "no message for 6 seconds" in queue.log()
    second = told(queue, "6").split(" ")[2]
    assert second != java

    broken = prepared(queue, {"a": b"line"}, param1="breaks")
    wait_until(lambda: queue.get(broken)["count"] == 1, PATIENCE)
    assert "Java was ended by KILL" in wait_until(
        lambda: (m := queue.get(broken)) and "Java" in m["status"] and m["status"],
        PATIENCE,
    )
    third = told(queue, "7").split(" ")[2]
    assert third not in (java, second)
