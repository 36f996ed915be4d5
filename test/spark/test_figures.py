"""What a batch has read and made is told in figures, and the history has columns of them."""

from __future__ import annotations

import json

import pytest

from rq.spark import journal_source
from rq.spark.given import Batch, Given
from rq.spark.spark_tables import SparkTables
from rq.spark.work import Work

FORM = r"^(?P<url>\S+) (?P<status>\d+)$"


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
def q(spark, tmp_path, monkeypatch):
    """Give two messages with a log each: three lines that fit, and one that does not."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("m1", "/a 200\n/b 500\n"), ("m2", "/a 200\nno log\n")):
        (tmp_path / name / "attach").mkdir(parents=True)
        (tmp_path / name / "attach/log").write_text(text)
    messages = tuple(Given(name, tmp_path / name) for name in ("m1", "m2"))
    return Work(Batch("b", "logs", messages), Desk(spark), messages)


def test_what_a_batch_read_and_made_is_told_in_figures(q):
    lines = q.lines()
    hits = q.parse(lines, FORM)
    # Read twice, and put beside itself: what counts must bear that.
    q.attach(hits.groupBy("url").count(), "urls.csv")
    q.attach(q.rejects.union(q.rejects).select("line"), "rejects.jsonl")
    assert lines.union(lines).count() == 8
    q.attach("text", "note.txt")
    said = json.loads(q.figures(["deliver/1"]))
    assert said.pop("spark_us") > 0
    assert said == {
        "messages": 2,
        "files": 2,
        "bytes": 28,
        "rows_in": 4,
        "rejected": 1,
        "rows_out": 4,
        "outputs": {"urls.csv": 2, "rejects.jsonl": 2, "note.txt": None},
        "sent": ["deliver/1"],
    }


def test_a_job_without_spark_tells_no_more_than_it_knows(q):
    assert json.loads(q.figures([])) == {"messages": 2}


@pytest.mark.parametrize(
    ("result", "figures"),
    [
        ('{"rows_in": 4, "rows_out": 2, "rejected": 1, "spark_us": 9}', (4, 2, 1, 9)),
        ('{"rows_in": -4, "rows_out": "x", "rejected": true}', (None,) * 4),
        ('{"rows_in": 99999999999999999999}', (None,) * 4),
        ("{torn", (None,) * 4),
        ("7", (None,) * 4),
        (None, (None,) * 4),
    ],
)
def test_the_history_has_columns_for_the_figures_of_a_batch(result, figures):
    event = {"seq": 1, "ev": "finish", "result": result}
    [row] = journal_source._batch("j", [event], False).to_pylist()
    assert tuple(row[name] for name in journal_source._FIGURES) == figures
    assert json.loads(row["extra"]) == {"result": result}


def test_the_history_says_who_has_sent_a_message():
    events = [
        {"seq": 1, "ev": "commit", "message": {"dest": "t", "by": "ann"}},
        {"seq": 2, "ev": "cancel", "by": "bob", "leases": ["x"]},
        {"seq": 3, "ev": "commit", "message": {"dest": "t"}},
    ]
    rows = journal_source._batch("j", events, False).to_pylist()
    assert [row["by"] for row in rows] == ["ann", None, None]
    assert json.loads(rows[1]["extra"]) == {"by": "bob", "leases": ["x"]}
