"""`df.write.format("rq")` and streams: rows are messages, each sent once."""

from __future__ import annotations

import datetime
import decimal
import json
from contextlib import closing

import pytest
from harness.kills import site_at
from harness.queues import running_queue
from harness.waiting import wait_until

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import Row

from rq.errors import BadInput, NoSuchMessage, Unreachable, WrongState
from rq.spark import sink
from rq.spark.queue_door import Door, Target

SCRIPT = "#!/bin/sh\necho done >&3\n"


@pytest.fixture(scope="module")
def queue(tmp_path_factory):
    """Give a queue in which messages wait."""
    with running_queue(tmp_path_factory.mktemp("q"), SCRIPT) as made:
        made.root.pause("t").touch()
        made.ask("wake")
        yield made


@pytest.fixture
def sent(queue):
    """Give a function that returns what was sent since, once its folders are made."""
    before = set(waiting(queue))

    def since():
        wait_until(lambda: len(waiting(queue)) == queue.ask("num_messages")["que"], 30)
        return [one for name, one in waiting(queue).items() if name not in before]

    return since


def waiting(queue):
    found = {}
    for path in queue.dir.path.glob("que/*/msg"):
        found[path.parent.name] = json.loads(path.read_bytes())
    return found


def write(rows, place, **options):
    asked = {"root": str(place.root.path), "queue": "t", **options}
    rows.write.format("rq").mode("append").options(**asked).save()


def test_columns_are_fields_and_nulls_are_not_set(spark, queue, sent):
    rows = spark.sql(
        "SELECT 'a' AS param1, 5 AS param2, named_struct('x', array(1, 2)) AS param3, "
        "timestamp'2027-01-02 03:04:05' AS due, cast(null AS string) AS src, "
        "date'2026-01-02' AS day, map('k', 1.5BD) AS prices"
    )
    write(rows, queue, extra="day,prices")
    [message] = sent()
    assert message["dest"] == "t"
    assert (message["param1"], message["param2"]) == ("a", 5)
    assert message["param3"] == {"x": [1, 2]}
    assert message["due"] == 1798859045
    assert (message["day"], message["prices"]) == ("2026-01-02", {"k": "1.5"})
    assert "src" not in message


def test_a_job_with_a_key_that_runs_again_sends_once(spark, queue, sent):
    rows = spark.range(5).selectExpr("id AS param1")
    for _ in range(2):
        write(rows, queue, key="the job of today")
    assert sorted(one["param1"] for one in sent()) == list(range(5))


def test_a_job_whose_rows_are_refused_sends_nothing(spark, queue, sent):
    rows = spark.range(20).selectExpr("id AS param1", "if(id = 13, -1, 0) AS due")
    with pytest.raises(PySparkException, match="due is not epoch seconds"):
        write(rows, queue, timeout="5")
    assert sent() == []
    wait_until(lambda: queue.ask("num_messages")["prep"] == 0, 30)


def test_more_than_a_transaction_holds_is_sent_together(spark, tmp_path):
    with site_at(tmp_path / "root") as site:
        queue = site.queue().start(TEST_MOST="600")
        queue.pause()
        asked = {"root": str(site.root.path), "queue": "t", "key": "k"}
        rows = spark.range(0, 2000, 1, 3).selectExpr("cast(id AS string) AS param1")
        for _ in range(2):
            rows.write.format("rq").mode("append").options(**asked).save()
        decided = queue.ok("list_txns", {"limit": 9})
        assert [txn["state"] for txn in decided] == ["committed"] * len(decided)
        assert sum(txn["messages"] for txn in decided) == 2000
        assert len(decided) > 3
        wait_until(lambda: len(waiting(queue)) == 2000, 120)
        sent = sorted(int(one["param1"]) for one in waiting(queue).values())
        assert sent == list(range(2000))


@pytest.mark.slow
def test_what_a_task_has_beyond_some_thousand_waits_as_rows(spark, tmp_path):
    with site_at(tmp_path / "root") as site:
        queue = site.queue().start(TEST_ROWS="300")
        queue.pause()
        asked = {"root": str(site.root.path), "queue": "t", "key": "k"}
        rows = spark.range(0, 5000, 1, 2).selectExpr("cast(id AS string) AS param1")
        for _ in range(2):
            rows.write.format("rq").mode("append").options(**asked).save()
        [decided] = queue.ok("list_txns", {"limit": 9})
        assert (decided["state"], decided["messages"]) == ("committed", 5000)
        assert queue.ok("detail")["counts"]["que"] == 5000
        # What the tasks prepare are messages at once, and then the first of the rows.
        wait_until(lambda: queue.ok("detail")["rows"] == 5000 - 4000 - 300, 60)
        queue.ask("bulk", {"action": "delete", "filter": {"state": "que"}})
        wait_until(lambda: len(waiting(queue)) == 5000, 120)
        sent = sorted(int(one["param1"]) for one in waiting(queue).values())
        assert sent == list(range(5000))


def test_rows_of_a_task_that_ran_twice_are_accepted_once(queue, sent):
    target = Target("t", None, str(queue.root.path))
    rows = [Row(param1=f"{n}") for n in range(2600)]
    with closing(Door(target)) as door:
        txn = door.open("a task that ran twice")["txn"]
        lost, told = (sink._prepare(door, txn, iter(rows), True) for _ in range(2))
        assert lost.rows
        assert lost.rows != told.rows
    for _ in range(2):
        sink._commit(target, [told])
    assert sorted(int(one["param1"]) for one in sent()) == list(range(2600))


def test_rows_that_say_when_they_run_are_messages(queue, sent):
    target = Target("t", None, str(queue.root.path))
    rows = [Row(param1=f"{n}", due=4e9 if n == 2500 else None) for n in range(2600)]
    with closing(Door(target)) as door:
        txn = door.open("some have a due")["txn"]
        told = sink._prepare(door, txn, iter(rows), True)
        assert not told.rows
        sink._commit(target, [told])
    assert [one["param1"] for one in sent() if one["due"] == 4e9] == ["2500"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "../t"}, "is not the name of a queue"),
        ({"ttl": "x"}, "not a number of seconds"),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(spark, queue, options, text):
    with pytest.raises(PySparkException, match=text):
        write(spark.range(1), queue, **options)


def test_a_column_that_nobody_reads_is_refused_unless_it_is_named(spark, queue, sent):
    rows = spark.createDataFrame([("a", 7)], "param1 string, shop int")
    with pytest.raises(PySparkException, match="no field of a message: shop; rename"):
        write(rows, queue)
    write(rows, queue, extra="colour, shop")
    assert [one["shop"] for one in sent()] == [7]


def test_a_queue_is_not_overwritten(spark, queue):
    asked = {"root": str(queue.root.path), "queue": "t"}
    writer = spark.range(1).write.format("rq").mode("overwrite").options(**asked)
    with pytest.raises(PySparkException, match="can be added to only"):
        writer.save()


def run(spark, queue, place):
    """Let a stream of lines send all that there is."""
    lines = spark.readStream.text(str(place / "in")).selectExpr("value AS param1")
    query = (
        lines.writeStream.format("rq")
        .option("root", str(queue.root.path))
        .option("queue", "t")
        .option("checkpointLocation", str(place / "query"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def test_a_batch_of_a_stream_that_is_repeated_is_sent_once(
    spark, queue, sent, tmp_path
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first").write_text("a\nb\nc\n")
    run(spark, queue, tmp_path)
    assert sorted(one["param1"] for one in sent()) == ["a", "b", "c"]
    # As a kill between the commit of the sink and that of the query leaves it.
    commits = tmp_path / "query" / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).unlink(missing_ok=True)
    run(spark, queue, tmp_path)
    assert len(sent()) == 3
    (tmp_path / "in" / "second").write_text("d\n")
    run(spark, queue, tmp_path)
    assert sorted(one["param1"] for one in sent()) == ["a", "b", "c", "d"]


# ---- without Spark


def test_requests_hold_what_an_owner_takes():
    rows = [Row(param1="x" * 400_000, n=n) for n in range(7)]
    rows += [Row(param1="y", n=n) for n in range(7, 1200)]
    made = list(sink.requests(map(sink.message_of, rows)))
    assert [one["n"] for part in made for one in part] == list(range(1200))
    assert all(len(part) <= 500 for part in made)
    assert all(len(json.dumps(part)) < 1_500_000 for part in made)


def test_what_json_cannot_hold_is_refused():
    assert sink.message_of(Row(a=decimal.Decimal("1.50"), b=None)) == {"a": "1.50"}
    when = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    assert sink.message_of(Row(due=when)) == {"due": 1767312000.0}
    with pytest.raises(BadInput, match="base64"):
        sink.message_of(Row(a=b"x"))


def test_a_door_tries_again_until_the_queue_is_back(queue):
    target = Target(queue="t", url=None, root=str(queue.root.path), timeout=60)
    with closing(Door(target)) as door:
        txn = door.open("a door")["txn"]
        ids = door.prepare(txn, [{"param1": "x"}])
        queue.restart()
        assert door.open("a door")["txn"] == txn
        door.commit(txn, ids)
        queue.restart()
        door.commit(txn, ids)
        with pytest.raises(WrongState):
            door.prepare(txn, [{}])
        with pytest.raises(NoSuchMessage):
            door.show("nothing")
    gone = Target(queue="x", url=None, root=str(queue.root.path), timeout=0.3)
    with closing(Door(gone)) as door, pytest.raises(Unreachable):
        door.open("k")


def test_a_column_that_is_refused_is_named_so_that_all_of_it_is_seen():
    with pytest.raises(BadInput) as refusal:
        sink.check_columns(["x\r\nFORGED\u202e"], {})
    assert "x<U+000D><U+000A>FORGED<U+202E>" in str(refusal.value)
    assert not {"\n", "\r", "\u202e"} & set(str(refusal.value))
