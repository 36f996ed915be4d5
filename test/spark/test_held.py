"""Batches that are decided and do not fit their tables: committed later, or given up."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from harness import delta_jobs
from harness.delta_jobs import add, call, place, rows

from rq.cli import spark as cli
from rq.errors import BadInput, Busy, Refused
from rq.layout import Root
from rq.spark import delta, held, sending, writes

DAY = 86400.0


@pytest.fixture
def duck_tables(tmp_path, monkeypatch):
    (tmp_path / "root/queue/logs").mkdir(parents=True)
    yield from delta_jobs.on_duckdb(tmp_path, monkeypatch)


def command(capsys, *words):
    """Run `rq spark table held`; return what it prints."""
    root = Root(writes.tables("logs").parent.parent.parent)
    assert cli.spark(root, ["table", "held", *words]) == 0
    return capsys.readouterr().out


def decided(duck_tables, job):
    """Return the key of a batch that was killed behind its decision."""
    late = call(duck_tables, job, publish=False)
    late.writes.decide(sending.origin("logs", "b1", late.messages), ["m1"])
    late.writes.close()
    return late.writes.key


def both(q):
    q.table(q.spark.sql("SELECT 2 AS n"), "other")
    q.table(q.spark.sql("SELECT 2 AS n"), "flights")


def flights(q):
    q.table(q.spark.sql("SELECT 2 AS n"), "flights")


def stuck(duck_tables, job=flights):
    """Return the key of a batch whose table has become another one."""
    key = decided(duck_tables, job)
    add(duck_tables, "SELECT 'x' AS n")
    with pytest.raises(delta.Held):
        writes.finish("logs", key)
    return key


def in_other():
    path = writes.tables("logs") / "other"
    return DeltaTable(str(path)).to_pyarrow_table().column("n").to_pylist()


def test_what_a_removed_queue_has_decided_can_be_given_up(duck_tables, capsys):
    """Others wait for it."""
    key = stuck(duck_tables)
    root = Root(writes.tables("logs").parent.parent.parent)
    root.queue("logs").path.rmdir()
    said = command(capsys, "logs", "flights", "--give-up", key)
    assert said == "1 row to the table flights, which were given up\n"
    assert json.loads(command(capsys, "--json")) == []


def test_what_is_given_up_is_never_written(duck_tables, capsys):
    key = stuck(duck_tables, both)
    [entry] = json.loads(command(capsys, "logs", "flights", "--json"))
    assert (entry["key"], entry["tables"]) == (key, ["other", "flights"])
    assert json.loads(command(capsys, "logs", "none", "--json")) == []
    said = command(capsys, "logs", "flights", "--give-up", key)
    assert said == (
        "1 row to the table other\n1 row to the table flights, which were given up\n"
    )
    assert json.loads(command(capsys, "--json")) == []
    assert writes.finish("logs", key)[1].is_given_up  # its message, retried, is done
    assert (rows(), in_other()) == (["x"], [2])
    left = [path for path in Path(place(), "_rq").rglob("*") if path.is_file()]
    assert left == []


def test_what_is_held_is_committed_when_the_table_fits_again(duck_tables, capsys):
    key = stuck(duck_tables)
    with pytest.raises(delta.Held, match="n is string in the table and integer here"):
        command(capsys, "logs", "--commit", key)
    DeltaTable(place()).delete()
    Path(place(), "_delta_log").rename(Path(place(), "_before"))
    assert command(capsys, "logs", "--commit", key) == "1 row to the table flights\n"
    assert rows() == [2]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--give-up", "KEY"], "say whose it is: QUEUE, and with --give-up NAME too"),
        (["logs", "--give-up", "KEY"], "and with --give-up NAME too"),
        (
            ["logs", "flights", "--give-up", "f" * 24],
            "is no batch of logs that is held",
        ),
        (["logs", "flights", "--give-up", "../x"], "is no batch of logs that is held"),
        (
            ["logs", "third", "--give-up", "KEY"],
            "nothing for a table 'third', only for o",
        ),
        (["logs", "--commit", "x"], "is no batch of logs that is held"),
    ],
)
def test_what_names_no_batch_is_one_sentence(duck_tables, capsys, words, sentence):
    key = stuck(duck_tables, both)
    with pytest.raises(BadInput) as failed:
        command(capsys, *(key if word == "KEY" else word for word in words))
    assert sentence in str(failed.value)


def test_what_is_in_its_table_cannot_be_given_up(duck_tables):
    key = stuck(duck_tables, both)
    with pytest.raises(Refused, match="other: the rows of this batch are in it"):
        held.give_up("logs", "other", key)


def test_a_batch_that_a_process_works_on_cannot_be_given_up(duck_tables):
    late = call(duck_tables, flights, publish=False)
    late.writes.decide({})
    with pytest.raises(Busy, match="a process is at work on it"):
        held.give_up("logs", "flights", late.writes.key)
    late.writes.close()


# ---- after long


def age(key, days):
    """Let a decision, and what its table says of it, be from some days ago."""
    own = writes.above("logs") / key
    then = time.time() - days * DAY
    path = own / "list.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "time": then}))
    for log in Path(place(), "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in filter(lambda line: "txn" in line, lines):
            assert line["txn"]["lastUpdated"] / 1000 > then
            line["txn"]["lastUpdated"] = int(then * 1000)
        log.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize(
    ("days", "sentence"), [(13, ""), (15, "more than 14 days ago")]
)
def test_a_decision_is_not_committed_after_14_days(duck_tables, capsys, days, sentence):
    add(duck_tables, "SELECT 1 AS n")
    key = decided(duck_tables, flights)
    age(key, days)
    if not sentence:
        command(capsys, "logs", "--commit", key)
        assert rows() == [1, 2]
        return
    for _ in range(2):
        with pytest.raises(delta.Held, match=sentence):
            command(capsys, "logs", "--commit", key)
    command(capsys, "logs", "flights", "--give-up", key)
    assert rows() == [1]


@pytest.mark.parametrize("days", [13, 29, 31])
def test_a_batch_is_never_twice_in_its_table_however_late_it_is_finished(
    duck_tables, days
):
    key = decided(duck_tables, flights)
    writes.finish("logs", key)
    (writes.above("logs") / key / "done").unlink()
    age(key, days)
    app_id = DeltaTable(place()).history(1)[0]
    assert app_id["rq_ids"] == ["m1"]
    if days < 30:
        writes.finish("logs", key)
    else:  # the table does not know any more whether it is in it
        with pytest.raises(delta.Held, match="more than 14 days ago"):
            writes.finish("logs", key)
    assert rows() == [2]
