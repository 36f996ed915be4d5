"""A queue read as a stream under leases: done when Spark has committed, not before; what
is killed on the way loses no message and doubles none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.extent import share
from harness.queues import running_queue
from harness.waiting import wait_until

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadMaxRows
from spark import lease_job

from rq.errors import BadInput, Busy
from rq.spark import lease_holder, lease_options, lease_queue, lease_stream

cloudpickle.register_pickle_by_value(lease_job)

HERE = Path(__file__).resolve().parent
SOME = 150  # more than one request confirms
IN_DRIVER = ("in the sink", "behind the sink")


@pytest.fixture
def queue(tmp_path):
    with running_queue(tmp_path / "root", num_workers=0, pull={}) as made:
        yield made


@pytest.fixture
def sent(queue):
    return [queue.send(param1=f"{number}") for number in range(SOME)]


def take(spark, place, queue, **options):
    """Let a query take what there is; return it."""
    query = lease_job.start(spark, place, queue, **options)
    assert query.awaitTermination(240)
    return query


def read(place):
    """Return how often each message is in the output."""
    files = (place / "output").iterdir()
    return Counter(msg_id for path in files for msg_id in json.loads(path.read_text()))


def assert_each_is_done_once(place, queue, sent):
    assert read(place) == dict.fromkeys(sent, 1)
    for msg_id in sent:
        message = queue.get(msg_id)
        assert (message["state"], message["count"]) == ("done", 0)
    assert queue.ok("leases")["leases"] == []
    assert list((place / "query/claims").glob("claim-*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("point", lease_job.IN_SOURCE)
def test_a_source_that_is_killed_loses_and_doubles_nothing(
    spark, queue, sent, tmp_path, point
):
    with pytest.raises(StreamingQueryException):
        take(spark, tmp_path, queue, die_at=point)
    assert (tmp_path / f"died-{point}").exists()
    take(spark, tmp_path, queue)
    assert_each_is_done_once(tmp_path, queue, sent)


@pytest.mark.slow
@pytest.mark.parametrize("point", share(IN_DRIVER, 1, ci=2))
def test_a_driver_that_is_killed_loses_and_doubles_nothing(
    spark, spark_env, queue, sent, tmp_path, point
):
    words = [HERE / "lease_job.py", tmp_path, queue.root.path, queue.name, point]
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "test")])
    env = {**os.environ, **spark_env, "PYTHONPATH": path}
    ended = subprocess.run([sys.executable, *words], env=env, check=False)
    assert ended.returncode == -9
    held = queue.ok("leases")["leases"]
    assert len(held) == SOME  # finished is what is committed, and nothing else
    take(spark, tmp_path, queue)
    assert_each_is_done_once(tmp_path, queue, sent)


def test_spark_shows_what_waits(spark, queue, tmp_path):
    for _ in range(5):
        queue.send()
    query = take(spark, tmp_path, queue, rows="3")
    told = [json.loads(one.json)["sources"][0] for one in query.recentProgress]
    behind = [one["latestOffset"] for one in told if one["numInputRows"]]
    assert behind[0] == {"leased": 3, "waiting": 2}


# ---- without Spark


@pytest.fixture
def reader(queue, tmp_path):
    """Give a function that returns readers of a stream as Spark makes them."""
    made = []

    def read(**options):
        about = {"root": str(queue.root.path), "queue": queue.name, "seconds": "60"}
        about["claims"] = str(tmp_path / "claims")
        found = lease_stream.LeaseReader(
            lease_options.parse_options({**about, **options})
        )
        made.append(found)
        return found

    yield read
    for one in made:
        one.stop()


ZERO = {"claim": 0}


def planned(reader, start, end):
    """Return what the tasks of a batch read, as Spark would have them do it."""
    parts = reader.partitions({"claim": start}, {"claim": end})
    batches = [one for part in parts for one in reader.read(part)]
    return [msg_id for one in batches for msg_id in one.column("msg_id").to_pylist()]


def latest(reader, start=0, **limit):
    return reader.latestOffset({"claim": start}, ReadMaxRows(**limit))["claim"]


def test_a_batch_is_finished_when_spark_has_committed_it(queue, reader):
    ids = [queue.send() for _ in range(5)]
    stream = reader()
    assert latest(stream, max_rows=3) == 1
    assert latest(stream, max_rows=3) == 1  # what was asked for and not committed
    assert sorted(planned(stream, 0, 1)) == ids[:3]
    assert latest(stream, 1, max_rows=3) == 2
    assert [queue.state(one) for one in ids] == ["done"] * 3 + ["run"] * 2
    stream.commit({"claim": 2})
    assert {queue.state(one) for one in ids} == {"done"}
    assert latest(stream, 2, max_rows=3) == 2


def test_a_stream_tells_what_waits_behind_what_it_holds(queue, reader, monkeypatch):
    monkeypatch.setattr(lease_holder, "_COUNTED", 0.0)
    for _ in range(5):
        queue.send()
    stream = reader()
    assert stream.reportLatestOffset() == {"leased": 0, "waiting": 5}
    latest(stream, max_rows=3)
    assert stream.reportLatestOffset() == {"leased": 3, "waiting": 2}
    latest(stream, 1, max_rows=3)
    assert stream.reportLatestOffset() == {"leased": 2, "waiting": 0}
    stream.commit({"claim": 2})
    latest(stream, 2, max_rows=3)
    assert stream.reportLatestOffset() == {"leased": 0, "waiting": 0}


def test_a_count_that_fails_leaves_what_was_counted(queue, reader, monkeypatch):
    monkeypatch.setattr(lease_holder, "_COUNTED", 0.0)
    queue.send()
    stream = reader()
    assert stream.reportLatestOffset()["waiting"] == 1

    def away(_self):
        raise Busy("it does not answer")

    monkeypatch.setattr(lease_queue.LeaseQueue, "waiting", away)
    assert stream.reportLatestOffset() == {"leased": 0, "waiting": 1}


def test_no_task_is_told_a_token(queue, reader):
    queue.send()
    stream = reader()
    latest(stream, max_rows=1)
    [part] = stream.partitions(ZERO, {"claim": 1})
    assert b"~" not in b"".join(part.messages)
    stream.commit({"claim": 1})


def test_who_takes_what_there_is_ends_though_messages_keep_coming(queue, reader):
    ids = [queue.send() for _ in range(3)]
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    later = queue.send()
    assert latest(stream, max_rows=2) == 1
    assert latest(stream, 1, max_rows=2) == 2
    assert latest(stream, 2, max_rows=2) == 2
    assert queue.state(later) == "que"
    assert {queue.state(one) for one in ids} == {"done"}
    assert latest(reader_anew(stream, reader), 2, max_rows=2) == 3
    assert queue.state(later) == "run"


def reader_anew(stream, reader):
    stream.stop()
    found = reader()
    assert found is not stream
    return found


def test_a_lease_that_was_lost_is_in_no_batch_that_is_read_again(queue, reader):
    ids = [queue.send() for _ in range(3)]
    stream = reader()
    assert latest(stream, max_rows=3) == 1
    again = reader_anew(stream, reader)
    claim = json.loads((again._holder._claims._file(1)).read_bytes())
    [lost] = [one["token"] for one in claim if one["msg_id"] == ids[1]]
    queue.ok("release", {"tokens": [lost]})
    assert sorted(planned(again, 0, 1)) == [ids[0], ids[2]]
    assert latest(again, 1, max_rows=3) == 2
    assert planned(again, 1, 2) == [ids[1]]
    assert [queue.state(one) for one in ids] == ["done", "run", "done"]
    again.commit({"claim": 2})


def test_what_a_removed_checkpoint_has_leased_is_given_back(queue, reader):
    ids = [queue.send() for _ in range(2)]
    stream = reader()
    latest(stream, max_rows=1)
    latest(stream, 1, max_rows=1)
    anew = reader_anew(stream, reader)
    assert latest(anew, max_rows=2) == 1
    assert planned(anew, 0, 1) == [ids[1]]
    assert queue.get(ids[1])["count"] == 0
    anew.commit({"claim": 1})


def test_leases_are_renewed_as_long_as_the_query_lives(queue, reader):
    queue.send()
    stream = reader(seconds="1")
    latest(stream, max_rows=1)
    [first] = queue.ok("leases")["leases"]
    wait_until(lambda: queue.ok("leases")["leases"][0]["until"] > first["until"] + 1)
    stream.commit({"claim": 1})


def test_two_queries_do_not_share_their_claims(queue, reader, monkeypatch):
    monkeypatch.setattr(lease_holder, "_PATIENCE", 0.0)
    first = reader()
    latest(first, max_rows=1)
    with pytest.raises(Busy, match="a directory of its own"):
        latest(reader(), max_rows=1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "no such name"}, "^queue: .* is not the name of a queue"),
        ({"claims": "here"}, "^claims: name a directory .* whole path"),
        ({"rows": "many"}, "^rows: 'many' is not a number from 1 to 100000"),
        ({"seconds": "0"}, "^seconds: '0' is not a number from 1 to 86400"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(options, text):
    about = {"root": "/", "queue": "q", "claims": "/claims", **options}
    with pytest.raises(BadInput, match=text):
        lease_options.parse_options(about)
