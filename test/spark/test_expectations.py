"""What a job promises of its data: what is wrong is not called done."""

from __future__ import annotations

import contextlib

import pytest

from rq.errors import BadInput
from rq.scripts.pipe import Verb
from rq.spark import expectations, jobs, parsing, results
from rq.spark.given import Batch
from rq.spark.spark_tables import SparkTables
from rq.spark.work import Work

LINE = '10.0.0.1 - - [21/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 12'


class Desk:
    """The outlet of a job: keeps what is said."""

    def __init__(self, spark):
        self.spark, self.said = spark, []

    def tables(self):
        return SparkTables(self.spark)

    def failed(self, q):
        pass

    def say(self, verb, text):
        self.said.append(f"{verb} {text}")


@pytest.fixture
def q(spark):
    return Work(Batch("b", "logs", ()), Desk(spark), [])


@contextlib.contextmanager
def fails(match):
    """What is done fails a job for good: nobody tries it again in a minute."""
    with pytest.raises(BadInput, match=match) as failed:
        yield
    assert jobs.verdict(failed.value) == (Verb.ERR, str(failed.value))


def lines(spark, fit, others):
    texts = [LINE] * fit + [f"no log {number}" for number in range(others)]
    return spark.createDataFrame([(text,) for text in texts], "line string")


def test_when_no_line_fits_the_job_has_failed_and_shows_some(spark, q):
    q.parse(lines(spark, 0, 5), "common").count()
    with fails(match=r"^5 of 5 lines do not fit 'common': 'no log"):
        q.check()


def test_some_lines_may_not_fit_and_all_if_that_is_allowed(spark, q):
    q.parse(lines(spark, 1, 5), "common").count()
    q.parse(lines(spark, 0, 5), "common", most_rejects=1).count()
    q.parse(lines(spark, 0, 0), "common").count()
    q.parse(lines(spark, 0, 5), "common")  # of which nothing was read
    q.check()


@pytest.mark.parametrize(("others", "is_wrong"), [(2, False), (3, True)])
def test_the_share_that_does_not_fit_is_limited(spark, q, others, is_wrong):
    hits = q.parse(lines(spark, 10 - others, others), "common", most_rejects=0.2)
    assert hits.groupBy("url").count().collect()
    if not is_wrong:
        q.check()
        return
    with fails(match="3 of 10 lines do not fit 'common', at most 20% "):
        q.check()


def test_what_does_not_fit_is_counted_with_what_was_made_of_it(spark, q):
    hits = q.parse(lines(spark, 5, 5), "common")
    with fails(match="5 of 10 lines do not fit"):
        q.expect(hits.groupBy("url").count(), most_rejects=0.4)


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_0_to_1(spark, q, share):
    with pytest.raises(BadInput, match="most_rejects"):
        q.parse(lines(spark, 1, 0), "common", most_rejects=share)


def table(spark):
    rows = [("a", 1), ("a", 2), (None, 2)]
    return spark.createDataFrame(rows, "name string, `at.hour` int")


def test_what_is_expected_and_holds_is_told(spark, q):
    q.expect(table(spark), rows=3, not_null=["at.hour"], unique=["name", "at.hour"])
    words = "3 rows, no nulls in at.hour, one for each name, at.hour"
    assert q.checked == [words]
    assert q._outlet.said == [f"run checked: {words}"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"rows": 4}, "expected at least 4 rows, there are 3"),
        ({"not_null": ["name"]}, "expected no nulls in name, 1 of 3 rows have one"),
        ({"unique": ["name"]}, "one row for each name, there are 2 with name='a'"),
    ],
    ids=["rows", "not_null", "unique"],
)
def test_what_is_expected_and_does_not_hold_fails_the_job(spark, q, given, why):
    with fails(match=why):
        q.expect(table(spark), **given)
    assert not q.checked


def test_a_column_that_is_not_there_is_named(spark):
    with pytest.raises(BadInput, match=r"no column 'nme'; there are name, at\.hour"):
        expectations.check(table(spark), 1, ["nme"], [])


def test_a_result_that_is_empty_is_not_attached_where_rows_were_promised(
    spark, tmp_path
):
    empty = table(spark).where("name = 'z'")
    with fails(match=r"bad\.csv has 0 rows, at least 1 were promised"):
        results.write(empty, tmp_path / "bad.csv", at_least=1)
    assert not (tmp_path / "bad.csv").exists()
    assert results.write(empty, tmp_path / "bad.csv") == 0


def test_names_of_groups_are_those_of_python(spark):
    form = r"^(?P<dep_time>\d+)-(?P=dep_time)1 \(?P?<(?P<b_2>(x)+)>"
    frame = spark.createDataFrame([("7-71 (P<xx>",), ("7-81 (P<xx>",)], "line string")
    hits, parsed = parsing.split(frame, form)
    assert [row.asDict() for row in hits.collect()] == [{"dep_time": "7", "b_2": "xx"}]
    assert parsed.rejects.count() == 1


def test_what_was_counted_is_there_when_nothing_was_left_to_group(spark, q):
    """Spark takes what follows out of its plan then, and forgets what it has counted."""
    table = lines(spark, 0, 3)
    everything = expectations.counted(table)
    hits = q.parse(everything.observed, "common")
    assert hits.groupBy("url").count().collect() == []
    assert expectations.count_of(everything) == 3
    with fails(match="3 of 3 lines do not fit 'common'"):
        q.check()


@pytest.mark.parametrize("promise", ["attach", "expect"])
def test_of_lines_that_do_not_fit_is_spoken_before_what_follows(
    spark, q, tmp_path, monkeypatch, promise
):
    """Who reads "0 rows" still has to find out why."""
    monkeypatch.chdir(tmp_path)
    hits = q.parse(lines(spark, 0, 3), "common")
    with fails(match="3 of 3 lines do not fit 'common'"):
        q.attach(hits, "hits.csv", at_least=1) if promise == "attach" else q.expect(
            hits
        )
