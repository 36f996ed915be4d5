"""A job does not wait for a cluster without a limit: its attempt ends, and it runs again."""

from __future__ import annotations

import contextlib
import json

import psutil
import pytest
from harness.queues import running_queue
from harness.spark_cluster import cluster_at
from harness.spark_jobs import HEAD, job_settings
from harness.waiting import wait_until

SECONDS = 300.0  # for what starts a JVM, on a busy machine

# It begins to count once executors are at work, and never ends by itself.
COUNT = """
import os, time

def slow(batches):
    open(os.environ["RQ_ROOT"] + "/at-work", "w").close()
    for batch in batches:
        time.sleep(600)
        yield batch

@job
def run(q):
    rows = q.spark.range(0, 2, 1, 2)
    if os.environ["RQ_COUNT"] == "0":
        rows = rows.mapInArrow(slow, "id long")
    q.attach(str(rows.count()), "count.txt")
    q.send("deliver")
"""


@pytest.fixture
def cluster(java_home, tmp_path_factory):
    with cluster_at(tmp_path_factory.mktemp("cluster")) as started:
        yield started


# Its first task begins, and its second try is quick.
STAND = """
import os, time
from pyspark import TaskContext

def first(batches):
    go = os.environ["RQ_ROOT"] + "/go"
    if TaskContext.get().attemptNumber() == 0:
        with open(os.environ["RQ_ROOT"] + "/at-work.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, os.environ["RQ_ROOT"] + "/at-work")
        while not os.path.exists(go):
            time.sleep(0.2)
    yield from batches

@job
def run(q):
    q.attach(str(q.spark.range(0, 2, 1, 1).mapInArrow(first, "id long").count()), "n.txt")
    q.send("deliver")
"""


@pytest.fixture
def job(cluster, java_home, tmp_path):
    home = {"RQ_JAVA_HOME": str(java_home.home)}
    settings = job_settings(tmp_path, cluster.environment(tmp_path) | home)
    settings["spark"]["conf"] |= {
        "spark.network.timeout": "8s",
        "spark.network.timeoutInterval": "2s",
        "spark.executor.heartbeatInterval": "1s",
    }
    with contextlib.ExitStack() as stack:

        def make(script, patience="8s"):
            settings["spark"]["patience"] = patience
            queue = running_queue(tmp_path, HEAD + script, "count", **settings)
            return stack.enter_context(queue)

        take = "#!/bin/sh\necho done >&3\n"
        stack.enter_context(running_queue(tmp_path, take, "deliver"))
        yield make


@pytest.mark.slow
def test_without_executors_an_attempt_ends_and_the_next_one_succeeds(cluster, job):
    job = job(COUNT)
    msg_id = job.send(max_count=5)
    wait_until((job.root.path / "at-work").exists, SECONDS)
    for name in ("worker1", "worker2", "master"):
        cluster.members[name].kill()
    # Back, the master knows nothing of the application, and gives it no executor.
    cluster.members["master"].start()
    waits = job.until(msg_id, "que", seconds=SECONDS)
    while not waits["count"]:
        waits = job.until(msg_id, "que", seconds=SECONDS)
    assert waits["status"].startswith("que - 60-no executor for 8 s: ")
    assert waits["count"] == 1
    for name in ("worker1", "worker2"):
        cluster.members[name].start()
    job.ok("run_message", {"msg_id": msg_id})
    assert job.ended(msg_id, SECONDS)["state"] == "done", json.dumps(job.get(msg_id))


@pytest.mark.slow
def test_an_executor_that_stands_still_is_not_waited_for(cluster, job):
    job = job(STAND)
    msg_id = job.send()
    at_work = job.root.path / "at-work"
    wait_until(at_work.exists, SECONDS)
    task = psutil.Process(int(at_work.read_text()))
    executor = next(each for each in task.parents() if each.name() == "java")
    executor.suspend()
    try:
        assert job.ended(msg_id, SECONDS)["state"] == "done", json.dumps(
            job.get(msg_id)
        )
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            executor.kill()


@pytest.mark.slow
def test_a_job_whose_master_alone_has_died_comes_to_its_end(cluster, job):
    job = job(STAND)
    msg_id = job.send()
    wait_until((job.root.path / "at-work").exists, SECONDS)
    cluster.members["master"].kill()
    (job.root.path / "go").touch()
    ended = job.ended(msg_id, SECONDS)
    assert (ended["state"], ended["count"]) == ("done", 0), json.dumps(ended)


@pytest.mark.slow
def test_workers_that_come_back_in_time_go_on_with_the_job(cluster, job):
    job = job(STAND, patience="2m")
    msg_id = job.send()
    wait_until((job.root.path / "at-work").exists, SECONDS)
    for name in ("worker1", "worker2"):
        cluster.members[name].kill()
        cluster.members[name].start()
    ended = job.ended(msg_id, SECONDS)
    assert (ended["state"], ended["attempt"]) == ("done", 1), json.dumps(ended)
