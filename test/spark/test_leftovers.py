"""What a message leaves in a Spark that stays is not there for the next one."""

from __future__ import annotations

import os
import threading

import pytest

from rq.spark import leftovers, session, warm
from rq.spark.spark_tables import SparkTables


def test_nothing_that_sessions_share_is_left(spark):
    one = session.another(spark)
    one.range(3).cache().count()
    one.range(3).createOrReplaceTempView("own")
    one.range(3).createGlobalTempView("everybodys")
    one.sql("CREATE DATABASE theirs")
    one.range(3).write.saveAsTable("kept")
    one.sql("CREATE VIEW seen AS SELECT 1 AS a")
    one.sparkContext.parallelize([1]).persist().count()
    one.sparkContext.setJobGroup("mine", "of the first")
    one.conf.set("spark.sql.shuffle.partitions", "7")
    leftovers.remove(spark)

    other = session.another(spark)
    for what in ("TABLES IN default", "VIEWS IN default", "VIEWS IN global_temp"):
        assert other.sql(f"SHOW {what}").collect() == []
    assert other.sql("SHOW DATABASES").collect() == [("default",)]
    assert other.conf.get("spark.sql.shuffle.partitions") == "2"
    assert other.sparkContext.getLocalProperty("spark.jobGroup.id") is None
    assert other.sparkContext._jsc.getPersistentRDDs().size() == 0
    # The place of a table is free again.
    other.range(1).write.saveAsTable("kept")
    leftovers.remove(spark)


def test_a_job_that_stops_its_session_stops_nothing(spark):
    tables = SparkTables(session.another(spark))
    tables.session.stop()
    assert tables.session.range(3).count() == 3
    stream = tables.session.readStream.format("rate").load().writeStream.format("noop")
    query = stream.start()
    tables.close()
    assert not query.isActive


def test_what_was_added_for_tasks_is_seen(spark, tmp_path):
    before = leftovers.added(spark.sparkContext)
    path = tmp_path / f"of-{os.getpid()}"
    path.write_text("a")
    spark.sparkContext.addFile(str(path))
    assert leftovers.added(spark.sparkContext) - before


def test_the_environment_of_a_message_is_gone_with_it(monkeypatch):
    for name in ("RQ_MSG_ID", "OF_A_JOB", "SPARK_OWN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/ann")
    before = dict(os.environ)
    monkeypatch.setenv("OF_A_JOB", "1")
    monkeypatch.setenv("SPARK_OWN", "1")
    monkeypatch.delenv("HOME")
    warm._restore(before)
    assert "OF_A_JOB" not in os.environ
    assert os.environ["HOME"] == "/home/ann"
    assert os.environ["SPARK_OWN"] == "1"


@pytest.mark.parametrize("daemon", [False, True])
def test_a_thread_that_is_left_is_seen_unless_it_ends_with_the_process(daemon):
    before, go = warm._threads(), threading.Event()
    thread = threading.Thread(target=go.wait, daemon=daemon)
    thread.start()
    try:
        assert (warm._threads() - before == {thread}) is not daemon
    finally:
        go.set()
        thread.join()
