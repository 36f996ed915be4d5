"""Days of Delta tables that are made again: exactly the files of their batches, one commit."""

from __future__ import annotations

import json
import os

import duckdb as db
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from harness.spark_days import kept_message, kill_at
from harness.spark_jobs import HEAD

from rq import days
from rq.cli import spark
from rq.days import Days
from rq.errors import BadInput
from rq.layout import Root
from rq.spark import (
    again,
    day_files,
    delta_days,
    functions,
    given,
    jobs,
    sending,
    table_care,
    writes,
)
from rq.spark.again import Again
from rq.spark.driver import Driver
from rq.spark.job_file import load
from rq.spark.progress import Progress
from rq.spark.spark_tables import SparkTables
from rq.tables import Name

JOB = """
@job(engine="{engine}")
def run(q):
    rows = q.parse(q.lines(), r"(?P<day>\\S+) (?P<host>\\w+) (?P<n>\\d+)")
    n = (F.col("n").cast("int") * F.lit({factor})).cast("int").alias("n")
    q.table(rows.where("{where}").select("day", "host", n), "hits", {how})
"""
MORE = """    q.table(rows.groupBy("day").agg(F.sum(n).alias("n")), "totals", by="day")
"""
BY_DAY, REPLACED = 'by="day"', 'by=["day", "host"], mode="replace_by"'
MON, TUE = "2026-11-02", "2026-11-03"


class Place:
    """A queue whose messages have ended, and the Delta table that its job writes."""

    def __init__(self, top, engine):
        self.root = Root(top / "root")
        self.table = self.root.spark / "tables" / "logs" / "hits"
        self.script = top / "run"
        self.noted = Days(self.root, "logs")
        self.engine, self._sent = engine, 0
        self.code()

    def code(self, factor=1, how=BY_DAY, where="true"):
        text = JOB.replace("{engine}", self.engine).replace("{how}", how)
        text = text.replace("{factor}", str(factor)).replace("{where}", where)
        self.script.write_text(HEAD + text)

    def two_tables(self, factor=1):
        """Let the job write a table of sums, too."""
        self.code(factor)
        self.script.write_text(self.script.read_text() + MORE)

    def message(self, *lines):
        """Keep a message that is done, with a log of these lines."""
        self._sent += 1
        return kept_message(self.root, self._sent, lines)

    def batch(self, *lines):
        """Let the job write what a batch of one message brings; return its id."""
        msg_id = self.message(*lines)
        messages = [given.of_folder(msg_id, days.kept(self.root.queue("logs"), msg_id))]
        driver = Driver(lambda tell: load(self.script, tell))
        progress = Progress(print, print)
        job = driver.job(print)
        batch = given.Batch(f"b{msg_id[-3:]}", "logs", tuple(messages))
        desk = again.Desk(driver, progress, batch)
        q = jobs.call(job, batch, desk, messages)
        about = day_files.of_script(job.digest, [msg_id])
        q.writes.decide(
            sending.origin("logs", batch.batch_id, messages), [msg_id], about
        )
        q.writes.publish()
        q.writes.close()
        desk.close()
        return msg_id

    def again(self, day):
        about = {"root": self.root, "queue": "logs", "script": self.script}
        wanted = Again(**about, day=day, backfill="b7")
        return again.run(wanted, print)

    def append_of_another_program(self):
        types = DeltaTable(self.table).to_pyarrow_table().schema
        row = pa.table({"host": ["x"], "n": [7], "day": [MON]}).cast(types)
        write_deltalake(self.table, row, mode="append")

    def rows(self, day=None):
        """Return what readers see."""
        table = DeltaTable(self.table).to_pyarrow_table().to_pylist()
        return sorted(
            (r["day"], r["host"], r["n"]) for r in table if day in (None, r["day"])
        )

    def sums(self):
        table = DeltaTable(self.table.parent / "totals").to_pyarrow_table()
        return sorted((row["day"], row["n"]) for row in table.to_pylist())

    def read_by_hand(self):
        """Return what the files hold that the log names, and how often it says that
        Monday was made again; without what reads Delta."""
        files, commits = set(), 0
        for path in sorted((self.table / "_delta_log").glob("*.json")):
            for action in map(json.loads, path.read_text().splitlines()):
                files |= {action["add"]["path"]} if "add" in action else set()
                files -= {action["remove"]["path"]} if "remove" in action else set()
                commits += action.get("commitInfo", {}).get("rq_day") == MON
        query = "SELECT CAST(day AS VARCHAR), host, n FROM read_parquet($1, hive_partitioning=true)"
        paths = [str(self.table / path) for path in files]
        return sorted(db.connect().execute(query, [paths]).fetchall()), commits

    @property
    def version(self):
        return DeltaTable(self.table).version()

    def state(self, day):
        [view] = self.noted.views([day], days.digest(self.script), 1000)
        return view["state"]


def placed(tmp_path, monkeypatch, engine):
    place = Place(tmp_path, engine)
    place.root.path.mkdir()
    monkeypatch.setenv("RQ_ROOT", str(place.root.path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return place


@pytest.fixture
def place(tmp_path, monkeypatch):
    yield placed(tmp_path, monkeypatch, "duckdb")
    functions.F.use(functions.SPARK)


@pytest.fixture
def two(place):
    """Give a place with two batches, both of which are in two days."""
    for n in (1, 3):
        place.batch(f"{MON} a {n}", f"{TUE} a {n}")
    return place


@pytest.mark.parametrize(
    "engine", ["duckdb", pytest.param("spark", marks=pytest.mark.slow)]
)
def test_a_day_is_one_commit_that_replaces_the_files_of_its_batches(
    tmp_path, monkeypatch, engine, request, capsys
):
    if engine == "spark":  # the one of this run
        own = SparkTables(request.getfixturevalue("spark"))
        monkeypatch.setattr(Driver, "tables", lambda *_: own)
        monkeypatch.setattr(again.Desk, "close", lambda _: None)
    two = placed(tmp_path, monkeypatch, engine)
    for n in (1, 3):
        two.batch(f"{MON} a {n}", f"{TUE} a {n}")
    two.code(factor=10)
    assert two.state(MON) == "stale"
    before = two.version
    text = two.again(MON)
    assert text == "2 rows of 2 messages in 2 batches"
    assert two.version == before + 1
    assert two.rows() == [(MON, "a", 10), (MON, "a", 30), (TUE, "a", 1), (TUE, "a", 3)]
    assert (two.state(MON), two.state(TUE)) == ("done", "stale")
    [made] = DeltaTable(two.table).history(1)
    assert (made["rq_day"], made["rq_backfill"]) == (MON, "b7")
    assert spark.spark(two.root, ["table", "show", "logs/hits"]) == 0
    assert f"WRITE: {MON} made again by backfill b7" in capsys.readouterr().out
    two.again(TUE)
    two.again(MON)
    assert [n for *_, n in two.rows()] == [10, 30, 10, 30]
    functions.F.use(functions.SPARK)


def test_rows_of_other_programs_and_of_batches_that_came_meanwhile_stay(
    two, monkeypatch
):
    two.append_of_another_program()
    two.code(factor=10)
    merged = delta_days.merged

    def late(*args):
        monkeypatch.setattr(delta_days, "merged", merged)
        two.code()
        two.batch(f"{MON} late 5")
        two.code(factor=10)
        return merged(*args)

    monkeypatch.setattr(delta_days, "merged", late)
    two.again(MON)
    assert two.rows(MON) == [
        (MON, "a", 10),
        (MON, "a", 30),
        (MON, "late", 5),
        (MON, "x", 7),
    ]
    assert two.state(MON) == "stale"  # of the one that came
    two.again(MON)
    assert [n for *_, n in two.rows(MON)] == [10, 30, 50, 7]


def test_files_that_were_joined_meanwhile_let_it_be_planned_again(two, monkeypatch):
    decide = writes.Writes.decide

    def joined(self, *args):
        decide(self, *args)
        monkeypatch.setattr(writes.Writes, "decide", decide)
        table_care.optimize(two.root, Name("logs", "hits"))

    two.code(factor=10)
    monkeypatch.setattr(writes.Writes, "decide", joined)
    two.again(MON)
    assert [n for *_, n in two.rows()] == [10, 30, 1, 3]
    assert two.noted.expected() == []


def test_a_day_is_made_again_after_its_files_were_joined(two):
    table_care.optimize(two.root, Name("logs", "hits"))
    two.batch(f"{MON} b 4")
    two.code(factor=10)
    two.again(MON)
    assert two.rows(MON) == [(MON, "a", 10), (MON, "a", 30), (MON, "b", 40)]
    table_care.optimize(two.root, Name("logs", "hits"))
    two.code(factor=2)
    two.again(MON)
    assert [n for *_, n in two.rows()] == [2, 6, 8, 1, 3]


def test_a_day_with_rows_that_others_have_joined_or_changed_is_refused(two):
    two.append_of_another_program()
    table_care.optimize(two.root, Name("logs", "hits"))
    before = two.rows()
    with pytest.raises(BadInput, match="hold rows of its batches and other rows"):
        two.again(MON)
    assert (two.rows(), two.state(MON)) == (before, "failed")


def test_a_batch_that_lost_some_of_its_rows_to_others_is_refused(place):
    place.batch(f"{MON} a 1", f"{MON} a 2", f"{TUE} a 3")
    DeltaTable(place.table).delete("n = 1")
    place.code(factor=10)
    with pytest.raises(BadInput, match="no batch of logs has put a row"):
        place.again(MON)
    assert place.rows() == [(MON, "a", 2), (TUE, "a", 3)]


def test_what_was_replaced_by_a_later_batch_is_not_brought_back(place):
    place.code(how=REPLACED)
    place.batch(f"{MON} a 1", f"{MON} b 2")
    place.batch(f"{MON} a 3")
    assert place.rows() == [(MON, "a", 3), (MON, "b", 2)]
    place.code(factor=10, how=REPLACED)
    place.again(MON)
    assert place.rows() == [(MON, "a", 30), (MON, "b", 20)]
    assert place.state(MON) == "done"


def test_a_batch_of_which_nothing_is_left_is_not_called(place):
    how = BY_DAY + ', mode="replace_by"'
    place.code(how=how)
    first = place.batch(f"{MON} a 1")
    place.batch(f"{MON} a 3")
    (days.kept(place.root.queue("logs"), first)).rename(place.root.path / "gone")
    place.code(factor=10, how=how)
    assert place.state(MON) == "stale"  # the one that is gone is none of its messages
    assert place.again(MON) == "1 row of 1 message in 1 batch"
    assert place.rows() == [(MON, "a", 30)]


def test_a_day_without_rows_any_more_leaves_none(two):
    two.code(where="CAST(n AS INT) > 5")
    two.again(MON)
    assert two.rows() == [(TUE, "a", 1), (TUE, "a", 3)]
    two.code(factor=10)
    two.again(MON)
    assert [n for *_, n in two.rows()] == [10, 30, 1, 3]


@pytest.mark.parametrize("point", ["decided", "committed"])
def test_killed_around_its_commit_it_is_carried_out_once(two, monkeypatch, point):
    class Killed(BaseException):
        pass

    publish = writes.Writes.publish

    def dies(self):
        if point == "committed":
            monkeypatch.setattr(day_files, "note", dies_noting)
            publish(self)
        raise Killed

    def dies_noting(*_):
        raise Killed

    two.code(factor=10)
    with monkeypatch.context() as patched:
        patched.setattr(writes.Writes, "publish", dies)
        note = day_files.note
        with pytest.raises(Killed):
            two.again(MON)
        patched.setattr(day_files, "note", note)
    monkeypatch.undo()
    os.environ["RQ_ROOT"] = str(two.root.path)
    writes.carry_out("logs")
    assert [n for *_, n in two.rows()] == [10, 30, 1, 3]
    assert two.state(MON) == "done"
    two.again(MON)
    assert [n for *_, n in two.rows()] == [10, 30, 1, 3]


OLD = [(MON, "a", 1), (MON, "a", 3), (TUE, "a", 1), (TUE, "a", 3)]
NEW = [(MON, "a", 10), (MON, "a", 30), (TUE, "a", 1), (TUE, "a", 3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "nth", "is_decided"),
    [
        ("days:Days.expect", 1, False),
        ("spark.writes:Writes.decide", 1, False),
        ("spark.day_files:take_away", 1, True),
        ("spark.targets:Target.name_file", 3, True),
        ("spark.delta:commit", 1, True),
        ("spark.delta_parts:removed", 1, True),
        ("spark.delta:_sync", 1, True),
        ("spark.day_files:note", 1, True),
        ("spark.unfinished:discard", 1, True),
        ("days:Days.settle", 1, True),
    ],
)
def test_a_kill_at_any_step_leaves_one_commit_or_none(two, step, nth, is_decided):
    two.code(factor=10)
    kill_at(step, nth, two.script)
    rows, commits = two.read_by_hand()
    assert (rows, commits) in [(OLD, 0), (NEW, 1)]
    # Whatever of this queue writes next carries out what was decided.
    writes.carry_out("logs")
    after = (NEW, 1) if is_decided else (OLD, 0)
    assert two.read_by_hand() == after
    assert two.rows() == after[0]
    assert two.noted.expected() == []
    assert two.state(MON) == ("done" if is_decided else "stale")
    two.again(MON)
    assert two.read_by_hand() == (NEW, 1 + is_decided)
    two.batch(f"{TUE} b 9")
    # What is done is remembered for a week, and removed then.
    left = [p for p in two.table.glob("_rq/*") if p.is_dir()]
    assert len(left) == (step == "spark.unfinished:discard")


# ---- several tables of one job


@pytest.fixture
def both(place):
    """Give a place with two batches, each of which is in two tables."""
    place.two_tables()
    for n in (1, 3):
        place.batch(f"{MON} a {n}", f"{MON} b {n}", f"{TUE} a {n}")
    return place


SUMS = [(MON, 2), (MON, 6), (TUE, 1), (TUE, 3)]
NEW_SUMS = [(MON, 20), (MON, 60), (TUE, 1), (TUE, 3)]


def versions(place):
    return [
        DeltaTable(place.table.parent / name).version() for name in ("hits", "totals")
    ]


def test_a_day_of_several_tables_is_one_commit_in_each(both):
    assert (both.sums(), versions(both)) == (SUMS, [1, 1])
    both.two_tables(factor=10)
    both.again(MON)
    assert both.sums() == NEW_SUMS
    assert [n for *_, n in both.rows(MON)] == [10, 30, 10, 30]
    assert versions(both) == [2, 2]
    both.again(MON)
    assert (both.sums(), versions(both)) == (NEW_SUMS, [3, 3])


def test_a_table_that_the_script_writes_since_then_or_no_more(both):
    both.code(factor=10)  # the sums no more
    both.again(MON)
    assert both.sums() == [(TUE, 1), (TUE, 3)]
    both.two_tables(factor=10)
    both.again(MON)
    assert both.sums() == NEW_SUMS
    assert [n for *_, n in both.rows(MON)] == [10, 30, 10, 30]


@pytest.mark.slow
@pytest.mark.parametrize("is_joined", [False, True])
def test_killed_between_the_commits_of_two_tables(both, is_joined):
    both.two_tables(factor=10)
    kill_at("spark.delta:commit", 2, both.script)
    assert (both.sums(), versions(both)) == (SUMS, [2, 1])
    if is_joined:  # the decision fits one of the tables no more
        table_care.optimize(both.root, Name("logs", "totals"))
    writes.carry_out("logs")
    assert both.sums() == (SUMS if is_joined else NEW_SUMS)
    assert both.state(MON) == ("stale" if is_joined else "done")
    both.again(MON)
    assert both.sums() == NEW_SUMS
    assert [n for *_, n in both.rows(MON)] == [10, 30, 10, 30]
    assert (both.state(MON), both.noted.expected()) == ("done", [])


def test_files_of_the_second_table_that_were_joined_let_all_be_planned_again(
    both, monkeypatch
):
    decide = writes.Writes.decide

    def joined(self, *args):
        decide(self, *args)
        monkeypatch.setattr(writes.Writes, "decide", decide)
        table_care.optimize(both.root, Name("logs", "totals"))

    both.two_tables(factor=10)
    monkeypatch.setattr(writes.Writes, "decide", joined)
    assert both.again(MON) == "6 rows of 2 messages in 3 batches"
    assert both.sums() == NEW_SUMS
    assert [n for *_, n in both.rows(MON)] == [10, 30, 10, 30]
    assert both.state(MON) == "done"
    assert both.noted.expected() == []
