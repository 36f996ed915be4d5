"""Rounds compute the hours that got something, and a few days at a time."""

from __future__ import annotations

import json
import shutil

import pyarrow.dataset as ds
import pytest
from harness import history_reference as reference
from harness.history_rounds import Gold, bronze_files, shown, slowest, some
from harness.journal_files import DAY, START, life, lines

from rq import published
from rq.layout import Root
from rq.spark import bronze, building, gold_parts, publish

HOUR = DAY // 24
DURATIONS = ("wait", "run")
LATER = START + 300 * DAY  # when all days of these tests are over


@pytest.fixture
def made(spark, tmp_path):
    return Gold(spark, Root(tmp_path))


@pytest.fixture
def computed(monkeypatch):
    """Give a list of how many events each computing of hours has read."""
    seen, compute = [], building.compute

    def counted(events):
        seen.append(events.count())
        return compute(events)

    monkeypatch.setattr(building, "compute", counted)
    return seen


@pytest.fixture
def days(monkeypatch):
    """Give a list of the days that were computed together, for each time."""
    seen, compute = [], building._compute

    def noted(at, group):
        seen.append([day.date for day in group])
        return compute(at, group)

    monkeypatch.setattr(building, "_compute", noted)
    return seen


def bare(days):
    """Return figures without the percentiles of whole days."""
    return {
        date: {
            key: {
                k: v
                for k, v in part.items()
                if key[1] is not None or k not in DURATIONS
            }
            for key, part in parts.items()
        }
        for date, parts in days.items()
    }


def test_a_round_computes_the_hours_that_got_something(made, computed):
    for hour in range(6):
        made.take_in(some(20, 20 * hour, START + hour * HOUR, 1 / 25, seed=hour))
    made.build(START + DAY // 2)
    first = slowest(made.root)
    made.take_in(
        [
            *life("m200", START + 2 * HOUR, run_us=3 * 10**8),
            *life("m201", START + 5 * HOUR),
        ]
    )
    assert len(made.build(START + DAY // 2)) == 1
    assert computed == [360, 60 + 3 + 60 + 3]
    assert bare(shown(made.root)) == bare(reference.gold(lines(made.root)))
    assert slowest(made.root)[0][0]["msg"] == "m200"
    assert len(slowest(made.root)[0]) == len(first[0]) == 10


def test_percentiles_of_a_day_are_about_until_it_is_over(made):
    made.take_in(some(300))
    [date] = made.build(START + DAY - 1)
    wanted = reference.gold(lines(made.root))
    found = shown(made.root)
    assert bare(found) == bare(wanted)
    day = published.Published(published.place(made.root)).days([date])[0]
    assert day["exact"] is False
    for kind in DURATIONS:
        about, exact = (of[date]["a", None][kind] for of in (found, wanted))
        assert about != exact
        assert all(0.5 <= one / two <= 2 for one, two in zip(about, exact, strict=True))
    assert exact_column(made) == {"hourly": {True}, "totals": {True, False}}

    # The next day nothing new has come, and the round ends what it could not say.
    [touched] = made.touched(START + DAY)
    assert (touched.date, touched.new, touched.over) == (date, frozenset(), True)
    assert made.build(START + DAY) == [date]
    assert shown(made.root) == wanted
    assert exact_column(made) == {"hourly": {True}, "totals": {True}}
    assert made.touched(START + DAY) == []


def exact_column(made):
    return {
        table: set(ds.dataset(made.at.gold / table).to_table()["exact"].to_pylist())
        for table in ("hourly", "totals")
    }


def test_a_history_of_before_there_were_hours_goes_on(made, computed):
    """It has no `hours/`, its days no `exact`, its files are not sorted by hour."""
    made.take_in(some(60, days=3))
    made.build(LATER)
    make_old(made)
    before = shown(made.root)
    assert made.build(LATER) == []
    assert shown(made.root) == before
    first, second, third = sorted(before)
    late = START + HOUR
    made.take_in([*life("late", late), *life("new", START + 2 * DAY + HOUR)])
    assert made.build(LATER) == [first, third]
    assert shown(made.root) == reference.gold(lines(made.root))
    assert shown(made.root)[second] == before[second]
    made.take_in(life("later", late))
    assert made.build(LATER) == [first]
    assert computed[2] < computed[1]
    assert shown(made.root) == reference.gold(lines(made.root))


def make_old(made):
    """Make the history of a root what earlier versions wrote."""
    shutil.rmtree(made.at.gold / "hours")
    spark = made.at.spark
    for name in bronze_files(made.root):
        rows = spark.read.parquet(name).localCheckpoint().coalesce(1)
        ordered = rows.sortWithinPartitions("queue", "journal", "seq")
        ordered.write.mode("overwrite").parquet(name.rpartition("/")[0])
    target = published.place(made.root)
    days = json.loads(target.days.read_text())
    for date, day in days["days"].items():
        del day["exact"]
        told = json.loads(target.day(date).read_text())
        del told["exact"]
        for slow in told["slowest"]:
            del slow["journal"], slow["seq"]
        target.day(date).write_text(json.dumps(told))
    target.days.write_text(json.dumps(days))


@pytest.mark.slow
def test_many_days_are_computed_a_few_at_a_time_and_go_on_after_a_kill(
    made, monkeypatch, days
):
    monkeypatch.setattr(building, "GROUP_ROWS", 100)
    for first in (0, 60):
        made.take_in(some(60, first, days=6, seed=first))
    write_days = publish.write_days
    written = []

    def killed(*args):
        written.append(args)
        if len(written) == 2:
            raise KeyboardInterrupt
        return write_days(*args)

    with monkeypatch.context() as patch:
        patch.setattr(publish, "write_days", killed)
        with pytest.raises(KeyboardInterrupt):
            made.build(LATER)
    first, cut = days
    assert len(first) < 3
    days.clear()
    made.build(LATER)
    assert days[0] == cut
    assert sum(days, first) == sorted(shown(made.root))
    assert all(len(group) < 3 for group in days)
    assert shown(made.root) == reference.gold(lines(made.root))


def test_hours_that_are_older_than_what_was_published_do_not_count(tmp_path):
    gold_parts.write_hours(tmp_path, "2026-01-02", 3, {})
    assert gold_parts.read_hours(tmp_path, "2026-01-02", 3) == {}
    assert gold_parts.read_hours(tmp_path, "2026-01-02", 4) is None
    assert gold_parts.read_hours(tmp_path, "2026-01-03", -2) is None


def test_of_a_file_only_the_pages_of_the_hours_are_read(spark, tmp_path):
    """Of what was written and of what was merged."""
    ts = [START + hour * HOUR + n for hour in range(24) for n in range(40)]
    rows = [("aa", seq, one, f"q{seq % 3}", "finish") for seq, one in enumerate(ts, 1)]
    frame = spark.createDataFrame(
        rows, "journal string, seq long, ts long, queue string, ev string"
    )
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("parquet.page.row.count.limit", "40")
    try:
        bronze.write(frame.orderBy("queue"), 0, str(tmp_path / "b"))
        bronze.write_merged(frame.orderBy("queue"), tmp_path / "merged")
        ordered = frame.coalesce(1).sortWithinPartitions(frame["ts"] % HOUR)
        ordered.write.parquet(str(tmp_path / "old"))
    finally:
        hadoop.unset("parquet.page.row.count.limit")
    for path in (tmp_path / "b", tmp_path / "merged"):
        assert scanned(spark, path, START + 5 * HOUR, START + 6 * HOUR) < 200
    assert scanned(spark, tmp_path / "old", START + 5 * HOUR, START + 6 * HOUR) == 960


def scanned(spark, path, first, end):
    """Return how many rows Spark takes from files for a stretch of time."""
    frame = spark.read.parquet(str(path)).where(f"ts >= {first} AND ts < {end}")
    assert frame.count() == 40
    rows = frame.select("seq", "ts")
    plan = rows._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    metrics = str(plan.collectLeaves().head().metrics().apply("numOutputRows").value())
    return int(metrics)
