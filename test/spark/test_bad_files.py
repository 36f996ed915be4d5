"""Files that cannot be read: all of a batch are found at once, and end their messages."""

from __future__ import annotations

import gzip

import pytest

from rq.scripts.pipe import Verb
from rq.spark import attachments, jobs, session, spark_tables
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job
from rq.spark.spark_tables import SparkTables

WHOLE = gzip.compress(b"a line\n" * 1000)


class Desk:
    """The outlet of a job of these tests."""

    def __init__(self, spark):
        self.spark = spark

    def tables(self):
        return SparkTables(self.spark)

    def failed(self, q):
        pass

    def say(self, verb, text):
        pass


@pytest.fixture
def messages(tmp_path):
    """Give eight messages with a file each: three are cut off."""
    for number in range(8):
        place = tmp_path / f"m{number}" / "attach"
        place.mkdir(parents=True)
        (place / "log.gz").write_bytes(WHOLE[:-9] if number in (2, 3, 5) else WHOLE)
    return tuple(Given(f"m{number}", tmp_path / f"m{number}") for number in range(8))


@pytest.mark.slow
def test_all_bad_files_of_a_batch_are_found_at_once(spark, messages):
    calls = []

    def count(q):
        calls.append((len(q.messages), q.lines().count()))

    def failing(q):
        calls.append(len(q.messages))
        count(q)

    batch = Batch("b", "logs", messages)
    q = jobs.call(Job(failing, None, {}), batch, Desk(spark), messages)
    assert calls == [8, 5, (5, 5000)]
    assert {name: verb for name, (verb, _) in q.endings.items()} == dict.fromkeys(
        ("m2", "m3", "m5"), Verb.ERR
    )
    assert all("log.gz: Compressed file" in why for _, why in q.endings.values())
    assert q.ids == ["m0", "m1", "m4", "m6", "m7"]


def test_files_that_go_bad_meanwhile_let_the_batch_run_again_later(spark, messages):
    left = [message for message in messages if message.msg_id in ("m0", "m1", "m4")]

    def spoiling(q):
        (q.messages[-1].folder / "attach/log.gz").write_bytes(WHOLE[:-9])
        q.lines().count()

    job = Job(spoiling, None, {})
    q = jobs.call(job, Batch("b", "logs", ()), Desk(spark), left)
    verbs = {name: verb for name, (verb, _) in q.endings.items()}
    assert verbs == {"m0": Verb.RESEND, "m1": Verb.ERR, "m4": Verb.ERR}
    assert q.endings["m0"][1].startswith("60-files of this batch could be read")


def test_a_place_that_is_away_is_asked_again(spark, tmp_path):
    bad = attachments.Bad("m1", "http://h/: 503", is_passing=True)
    assert attachments.unreadable(bad.error()) == bad
    assert jobs._end_of(bad) == (Verb.RESEND, "60-http://h/: 503")


def test_sessions_that_share_a_java_each_read_lines(spark, tmp_path):
    """The sessions of a job that stays: one was made from the other."""
    path = tmp_path / "a.log"
    path.write_text("one\ntwo\n")
    every = [attachments.File("m", "host", path.name, str(path), path.stat().st_size)]
    try:
        for each in (spark, session.another(spark), session.another(spark)):
            assert spark_tables.rows(each, every, ()).count() == 2
    finally:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
