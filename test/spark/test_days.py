"""Days of tables that are made again: one commit each, whatever is killed or comes between."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb as db
import pytest
from harness.checkout import CHECKOUT
from harness.spark_days import ALL, MON, NEW, TUE, Place, kill_at, tenfold
from harness.waiting import wait_until

from rq import days
from rq.config import files
from rq.days import Standing
from rq.errors import BadInput, Busy
from rq.spark import day_files, functions, writes


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path)
    made.root.path.mkdir()
    monkeypatch.setenv("RQ_ROOT", str(made.root.path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    yield made
    functions.F.use(functions.SPARK)


@pytest.fixture
def two(place):
    """Give a place with two batches, both of which are in two days."""
    return place.two()


def test_a_day_is_made_again_by_the_script_as_it_is_and_others_stay(two):
    assert two.rows() == ALL
    assert two.state(MON) == Standing.DONE
    two.code(tenfold)
    assert [two.state(day) for day in (MON, TUE)] == [Standing.STALE] * 2
    assert two.again(MON) == "4 rows of 4 messages in 2 batches"
    assert two.rows() == NEW
    assert [two.state(day) for day in (MON, TUE)] == [Standing.DONE, Standing.STALE]
    # Made again once more, of the same messages in the same calls.
    two.code()
    assert two.again(MON) == "4 rows of 4 messages in 1 batch"
    assert two.rows() == ALL


def test_a_batch_that_comes_meanwhile_stays_beside_it(two, monkeypatch):
    late, decide = two.message(f"{MON} 5"), day_files.of_day

    def between(*args):
        two.batch(late)
        return decide(*args)

    two.code(tenfold)
    monkeypatch.setattr(day_files, "of_day", between)
    two.again(MON)
    assert two.rows() == sorted([*NEW, (MON, 50)])


def test_a_day_whose_batches_were_replaced_meanwhile_is_planned_again(two, monkeypatch):
    decide, seen = day_files.of_day, []

    def between(day, script, inputs, calls):
        seen.append([batch.name for batch in inputs])
        if len(seen) == 1:  # as if the lock were none
            about = decide(day, script, inputs, calls)
            made = [(e["where"], e["manifest"]) for e in about["removes"]]
            batch = days.Batch(
                name="other", decided=1.0, script="x", groups=inputs[0].groups,
                parts=[days.Part(day=day, place=made[0][0], manifest="o", rows=1)],
            )  # fmt: skip
            two.noted.note(batch, day, made)
        return decide(day, script, inputs, calls)

    monkeypatch.setattr(day_files, "of_day", between)
    two.again(MON)
    assert len(seen) == 2
    assert seen[1] == ["other"]


def test_two_do_not_make_one_day_again_at_once(two):
    held = two.noted.lock(MON)
    with pytest.raises(Busy, match="another process"):
        two.again(MON)
    two.again(TUE)
    os.close(held)
    two.again(MON)
    assert two.rows() == ALL


def test_a_day_that_fails_keeps_its_rows(two):
    two.code(
        lambda text: text.replace("rows = ", "raise ValueError('no')\n    rows = ")
    )
    with pytest.raises(ValueError, match="no"):
        two.again(MON)
    assert two.rows() == ALL
    [view] = two.noted.views([MON], days.digest(two.script), 1000)
    assert (view["state"], view["why"]) == (Standing.FAILED, "ValueError: no")
    assert list(two.out.glob("_rq/*/")) == []
    two.code()
    two.again(MON)
    assert two.state(MON) == Standing.DONE


def test_a_message_that_fails_now_fails_its_day(two):
    two.code(lambda text: f"{text}    q.err(q.ids[0], 'bad')\n")
    with pytest.raises(BadInput, match="1000000000001 is err now: bad"):
        two.again(MON)
    assert two.rows() == ALL


def test_a_day_is_unavailable_when_a_message_is_gone(two):
    [path] = two.root.path.glob("queue/logs/done/**/*1000000000004")
    files.remove_dir(path)
    assert two.state(MON) == Standing.DONE  # nothing needs to be done
    two.code(tenfold)
    [view] = two.noted.views([MON], days.digest(two.script), 1000)
    assert view["state"] == Standing.UNAVAILABLE
    assert view["why"] == "1 of its 4 messages is gone"
    with pytest.raises(
        BadInput, match="1000000000004, of which 2026-11-02 is made, is"
    ):
        two.again(MON)
    assert two.rows() == ALL


def test_a_day_without_rows_can_be_made_again(two):
    two.code(
        lambda text: text.replace(
            '.select("day"', f'.where("day > \'{MON}\'").select("day"'
        )
    )
    two.again(MON)
    assert two.rows() == [(TUE, 1), (TUE, 3)]
    two.code()
    two.again(MON)
    assert two.rows() == ALL


def test_what_a_job_would_send_is_not_sent(two):
    two.code(lambda text: f"{text}    q.send('deliver')\n")
    assert two.again(MON).endswith("; 2 messages were not sent: a day is tables only")


def test_a_batch_that_is_noted_once_more_does_not_come_back(two):
    first = two.noted.inputs(MON)
    two.code(tenfold)
    two.again(MON)
    for batch in first:  # as its message does that was killed before it was done
        two.noted.note(batch)
    two.again(MON)
    assert two.rows() == NEW


@pytest.mark.slow
def test_a_day_is_made_again_on_spark(two, spark_env, monkeypatch):
    for name, value in spark_env.items():
        if name != "RQ_ROOT":
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("RQ_SPARK_ENGINE", "spark")
    two.code(tenfold)
    words = [sys.executable, "-m", "rq.spark.again", "logs", MON]
    (two.root.queue("logs").path / "config.json").write_text(
        json.dumps({"script": str(two.script)})
    )
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "test")])
    env = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith("done 4 rows of 4 messages in 2 batches\n")
    assert two.rows() == NEW


# ---- increments


def increment(*, fails=False, killed=""):
    """Take an increment as a batch does; return from when to when it goes."""
    taken = writes.Writes("logs", "b")
    with contextlib.closing(taken):
        span = taken.since("last")
        if not fails:
            taken.decide({})
        if not fails and not killed:
            taken.publish()
    return span


def test_an_increment_begins_where_the_last_that_succeeded_has_ended(place):
    before, first = increment()
    assert before is None
    assert increment(fails=True)[0] == first
    begun, second = increment()
    assert (begun, second > first) == (first, True)
    # Decided, and killed before it was carried out: the next one knows of it.
    begun, third = increment(killed="decided")
    assert begun == second
    assert increment()[0] == third
    # A decision that is carried out once more puts nothing back.
    place.noted.mark({"last": first})
    assert place.noted.marked("last") > third


def test_two_batches_do_not_take_one_increment(place):
    taken = writes.Writes("logs", "b")
    first = taken.since("last")
    spans = []
    other = threading.Thread(target=lambda: spans.append(increment()))
    other.start()
    wait_until(lambda: spans or "-> FLOCK" in Path("/proc/locks").read_text())
    assert spans == []
    taken.decide({})
    taken.publish()
    taken.close()
    other.join()
    assert spans[0][0] == first[1]


def test_a_batch_that_only_sends_keeps_its_increment(place):
    taken = writes.Writes("logs", "b")
    taken.since("last")
    assert taken.is_any
    taken.decide({})
    taken.close()
    assert writes.finish("logs", taken.key) == []
    assert place.noted.marked("last") is not None
    assert place.noted.expected() == []


def test_a_job_reads_its_increment_as_times(place):
    place.code(lambda text: f"{text}    q.run('{{}} {{}}'.format(*q.since_last()))\n")
    place.batch(place.message(f"{MON} 1"))
    assert place.noted.marked("last") is not None
    with pytest.raises(BadInput, match=r"q\.since_last: last: a day is made again of"):
        place.again(MON)


@pytest.mark.parametrize(
    ("step", "nth", "is_decided"),
    [
        ("days:Days.expect", 1, False),
        ("spark.writes:Writes.decide", 1, False),
        ("spark.day_files:take_away", 1, True),
        ("spark.targets:Target.remove", 1, True),
        ("spark.targets:Target.remove", 2, True),
        ("spark.day_files:note", 1, True),
        ("days:Days.settle", 1, True),
    ],
)
def test_a_kill_at_any_step_leaves_the_day_old_or_new(two, step, nth, is_decided):
    two.code(tenfold)
    kill_at(step, nth, two.script)
    query = f"SELECT CAST(n AS INT) FROM read_parquet('{two.out}/day={MON}/*.parquet')"
    if any(two.out.glob(f"day={MON}/*.parquet")):  # no row is seen twice
        numbers = {n for (n,) in db.connect().execute(query).fetchall()}
        assert numbers <= {1, 2, 3, 4} or numbers <= {10, 20, 30, 40}
    # Whatever of this queue writes next carries out what was decided.
    writes.carry_out("logs")
    assert two.rows() == (NEW if is_decided else ALL)
    assert two.noted.expected() == []
    two.again(MON)
    assert two.rows() == NEW
    late = two.message(f"{TUE} 9")
    two.batch(late)
    assert [p for p in two.out.glob("_rq/*") if p.is_dir()] == []
