"""The history: every sealed event once, and gold that plain Python comes to, too."""

from __future__ import annotations

import contextlib
import json
import threading

import duckdb
import pyarrow.dataset as ds
import pytest
from harness import history_reference as reference
from harness.history_rounds import PAST, bronze_files, shown, slowest, some
from harness.journal_files import DAY, START, JournalFiles, life, lines
from harness.waiting import wait_until

from rq import published
from rq.errors import Damaged, Refused
from rq.layout import Root
from rq.spark import bronze, building, gold_parts, rounds
from rq.spark.building import History
from rq.spark.rounds import Settings

QUICK = Settings(rows=600)  # two batches


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


def counts(root):
    index = published.Published(published.place(root)).index()
    return {
        queue: {state: n for state, n in states.items() if n}
        for queue, states in index["counts"].items()
    }


def bronze_keys(root):
    """Return journal and number of all rows of bronze, read without Spark."""
    table = ds.dataset(bronze_files(root)).to_table(columns=["journal", "seq"])
    return sorted(zip(*table.to_pydict().values(), strict=True))


def written_keys(root):
    return sorted((one["journal"], one["seq"]) for one in lines(root))


def test_gold_is_what_plain_python_counts(spark, root):
    first, second = JournalFiles(root, "a", "aa"), JournalFiles(root, "b", "bb")
    first.seal(some(150, start=PAST, days=2))
    first.seal(some(150, first=150, start=PAST, days=2, seed=2))
    rider = {"riders": ["m500", "m501"], "rides": "x"}
    waiting = [next(life(name, PAST)) for name in ("m500", "m501")]
    gone = {"ts": PAST + DAY, "ev": "expire", "was": "done", "state": "gone"}
    of_second = some(90, start=PAST, days=2)
    second.seal([*of_second, *waiting, *life("m502", PAST, **rider)])
    second.seal([{**gone, "msgs": ["m500", "m501"]}, {"ts": PAST, "ev": "group"}])
    done = rounds.run_round(spark, root, QUICK)

    events = list(lines(root))
    assert shown(root) == reference.gold(events)
    assert counts(root) == reference.states(events)
    assert done.events == len(events)
    assert done.batches > 1
    assert bronze_keys(root) == written_keys(root)
    table = "SELECT count(*), count(DISTINCT (journal, seq)) FROM read_parquet($1)"
    assert duckdb.execute(table, [bronze_files(root)]).fetchone() == (len(events),) * 2
    assert_parquet_is_as_published(root)
    slow = [one for one in events if one.get("run_us") and one["queue"] == "a"]
    longest = max(slow, key=lambda one: one["run_us"])
    assert [longest["msg"], longest["run_us"]] in [
        [one["msg"], one["run_us"]] for day in slowest(root) for one in day
    ]


def assert_parquet_is_as_published(root):
    place = bronze.place(root)
    path = place.gold(place.current().number)
    found = {}
    for table in ("hourly", "totals"):
        files = ds.dataset(path / table, partitioning="hive")
        for one in files.to_table().to_pylist():
            date, key = str(one.pop("date")), (one.pop("queue"), one.pop("hour"))
            assert one.pop("exact")
            found.setdefault(date, {})[key] = {**one, "causes": dict(one["causes"])}
    assert found == shown(root)


def test_a_late_event_changes_exactly_its_day_and_a_lost_checkpoint_nothing(
    spark, root
):
    journal = JournalFiles(root, "a", "aa")
    oldest = journal.seal(some(60, start=PAST, days=3))
    rounds.run_round(spark, root)
    before = shown(root)
    journal.seal(life("late", PAST + 5 * 10**6))
    done = rounds.run_round(spark, root)
    after, slow = shown(root), slowest(root)
    [first, *others] = sorted(before)
    assert done.days == [first]
    assert after[first] != before[first]
    assert [after[date] for date in others] == [before[date] for date in others]
    assert after == reference.gold(lines(root))

    # What retention has removed from the journals is in bronze alone.
    every = written_keys(root)
    oldest.unlink()
    lose_checkpoint(root)
    rounds.run_round(spark, root)
    assert (shown(root), slowest(root)) == (after, slow)
    assert bronze_keys(root) == every


def lose_checkpoint(root):
    place = bronze.place(root)
    checkpoint = place.checkpoint(place.current().number)
    checkpoint.rename(checkpoint.with_name("elsewhere"))


def test_a_batch_that_was_cut_off_after_its_write_counts_once(spark, root, monkeypatch):
    journal = JournalFiles(root, "a", "aa")
    journal.seal(some(60, start=PAST))
    write = bronze.write

    def cut(lines, batch, target):
        write(lines, batch, target)
        raise RuntimeError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(bronze, "write", cut)
        with pytest.raises(Damaged, match="Spark ended the round"):
            rounds.run_round(spark, root)
    # What came meanwhile belongs to the next batch.
    journal.seal(some(60, first=60, start=PAST))
    rounds.run_round(spark, root)
    assert bronze_keys(root) == written_keys(root)
    assert shown(root) == reference.gold(lines(root))


def test_merging_the_batches_of_a_day_changes_no_answer(spark, root, monkeypatch):
    journal = JournalFiles(root, "a", "aa")
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "merge_closed", lambda *_: None)
        for part in range(2):
            journal.seal(some(20, first=20 * part, start=PAST, seed=part))
            rounds.run_round(spark, root)
    place = bronze.place(root)
    source = place.bronze(place.current().number)
    with counting(root) as seen:
        rounds.merge_closed(History(spark, place, place.current()), 0.0)
    assert set(seen) == {120}
    [date] = bronze.dates(source)
    [merged] = bronze.batches(source, date, place.current())
    others = [one for one in bronze.every_batch(source, date) if one != merged]
    assert [one.number for one in others] == [0, 1]  # for readers that are at them
    assert bronze_keys(root) == written_keys(root)

    journal.seal(some(10, first=200, start=PAST))
    rounds.run_round(spark, root, Settings(old=0.0))
    left = bronze.every_batch(source, date)
    assert [one.path.name for one in left] == ["batch=c1", "batch=2", "batch=c2"]
    assert shown(root) == reference.gold(lines(root))
    assert bronze_keys(root) == written_keys(root)


@contextlib.contextmanager
def counting(root):
    """Read again and again how many rows there are; give the list of them."""
    seen, ended = [], threading.Event()

    def count():
        while not ended.is_set():
            seen.append(ds.dataset(bronze_files(root)).count_rows())

    thread = threading.Thread(target=count)
    thread.start()
    try:
        wait_until(lambda: seen, 30)
        yield seen
        number = len(seen)
        wait_until(lambda: len(seen) > number + 1, 30)
    finally:
        ended.set()
        thread.join()


def test_files_of_an_older_rq_are_read_and_new_fields_are_kept(spark, root):
    journal = JournalFiles(root, "a", "aa")
    journal.seal(life("m1", START, mood={"fine": True}))
    rounds.run_round(spark, root)
    [row] = duckdb.execute(
        "SELECT extra FROM read_parquet($1) WHERE ev = 'finish'", [bronze_files(root)]
    ).fetchall()
    assert json.loads(row[0]) == {"mood": {"fine": True}}

    place = bronze.place(root)
    source = place.bronze(place.current().number)
    [date] = bronze.dates(source)
    [batch] = bronze.batches(source, date, place.current())
    older = (
        spark.read.parquet(str(batch.path)).drop("riders", "cause").localCheckpoint()
    )
    older.write.mode("overwrite").parquet(str(batch.path))
    found = building.compute(bronze.read(spark, source, [batch.path]))
    assert found[date][0].parts["a"].counts["done"] == 1
    assert found[date][0].parts["a"].causes == {}


def test_a_gap_is_told_in_a_sentence_and_can_be_left_behind(spark, root):
    journal = JournalFiles(root, "a", "aa")
    journal.seal(some(5))
    rounds.run_round(spark, root)
    journal.seal(some(5, first=5)).unlink()
    journal.seal(some(5, first=10))
    with pytest.raises(
        Damaged, match=r"^queue a: events 16 to 30 of journal aa are in"
    ):
        rounds.run_round(spark, root)
    rounds.run_round(spark, root, Settings(skip_gaps=True))
    assert bronze_keys(root) == written_keys(root)


def test_a_history_made_anew_tells_what_is_lost_and_keeps_what_it_had(spark, root):
    """A segment in the middle is gone after it was read: the journals alone would make
    less of the history than there was."""
    journal = JournalFiles(root, "a", "aa")
    journal.seal(some(5))
    middle = journal.seal(some(5, first=5))
    journal.seal(some(5, first=10))
    rounds.run_round(spark, root)
    before, gold_before = bronze_keys(root), shown(root)
    assert len(before) == 45
    middle.unlink()
    with pytest.raises(
        Damaged, match=r"^queue a: events 16 to 30 of journal aa are in no file"
    ):
        rounds.run_round(spark, root, Settings(rebuild=True))
    rounds.run_round(spark, root, Settings(skip_gaps=True))
    assert bronze_keys(root) == before
    assert shown(root) == gold_before


def test_a_damaged_line_is_told_in_a_sentence(spark, root):
    path = JournalFiles(root, "a", "aa").seal(some(5))
    path.write_bytes(path.read_bytes().replace(b'"m3"', b'"m4"'))
    with pytest.raises(Damaged, match=r"history/aa: event 10 is missing or not whole"):
        rounds.run_round(spark, root)


def test_a_round_ends_while_events_keep_coming(spark, root):
    journal = JournalFiles(root, "a", "aa")
    journal.seal(some(5))
    ended = threading.Event()

    def keep_sealing():
        while not ended.wait(0.1):
            journal.seal(some(5, first=journal.last))

    thread = threading.Thread(target=keep_sealing)
    thread.start()
    try:
        done = rounds.run_round(spark, root)
    finally:
        ended.set()
        thread.join()
    assert 15 <= done.events < journal.last
    rounds.run_round(spark, root)
    assert bronze_keys(root) == written_keys(root)


def test_a_queue_that_was_removed_or_made_anew_counts_what_there_is():
    days = [{"aa": {"done": 3}, "bb": {"done": 5}}, {"bb": {"done": -1, "que": 2}}]
    known = {"bb": "b", "cc": "c"}
    assert gold_parts.summed(days, known) == {"b": {"done": 4, "que": 2}, "c": {}}


def test_two_rounds_at_once_are_refused(root):
    place = bronze.place(root)
    place.path.mkdir(parents=True)
    with (
        rounds._alone(place.lock),
        pytest.raises(Refused, match="another round"),
        rounds._alone(place.lock),
    ):
        pass
