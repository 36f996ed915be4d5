"""A job does not wait for a cluster without a limit: its attempt ends, and it runs again."""

from __future__ import annotations

import json

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


@pytest.fixture
def job(cluster, java_home, tmp_path):
    home = {"RQ_JAVA_HOME": str(java_home.home)}
    settings = job_settings(tmp_path, cluster.environment(tmp_path) | home)
    settings["spark"]["patience"] = "8s"
    deliver = running_queue(tmp_path, "#!/bin/sh\necho done >&3\n", "deliver")
    with deliver, running_queue(tmp_path, HEAD + COUNT, "count", **settings) as queue:
        yield queue


@pytest.mark.slow
def test_without_executors_an_attempt_ends_and_the_next_one_succeeds(cluster, job):
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
