"""`rq.spark.history`: what rounds have taken in, each event once whatever is merged."""

from __future__ import annotations

import threading

import pytest
from harness import documents
from harness.history_rounds import PAST, some
from harness.journal_files import JournalFiles, lines
from harness.waiting import wait_until

import rq.spark
from rq.layout import Root
from rq.spark import bronze, rounds
from rq.spark.building import History


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path)


@pytest.mark.slow
def test_each_event_is_there_once_while_days_are_merged(spark, root, monkeypatch):
    assert rq.spark.history(spark, root.path).count() == 0
    journal = JournalFiles(root, "a", "aa")
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "merge_closed", lambda *_: None)
        for part in range(2):
            journal.seal(some(20, first=20 * part, start=PAST, seed=part))
            rounds.run_round(spark, root)
    place = bronze.place(root)
    begun = rq.spark.history(spark, root.path)
    seen, ended = [], threading.Event()

    def count():
        while not ended.is_set():
            seen.append(rq.spark.history(spark, root.path).count())

    thread = threading.Thread(target=count)
    thread.start()
    try:
        wait_until(lambda: seen, 60)
        rounds.merge_closed(History(spark, place, place.current()), 3600.0)
        number = len(seen)
        wait_until(lambda: len(seen) > number + 1, 60)
    finally:
        ended.set()
        thread.join()
    assert set(seen) == {120}
    rows = begun.select("journal", "seq").collect()  # read after the merge
    assert sorted(rows) == sorted((one["journal"], one["seq"]) for one in lines(root))
    after = rq.spark.history(spark, root.path)
    assert after.select("journal", "seq").distinct().count() == 120
    [directory] = {name.rpartition("/")[0] for name in after.inputFiles()}
    assert directory.endswith("batch=c1")


def test_the_example_of_the_guide_says_what_it_promises(
    spark, root, monkeypatch, capsys
):
    day = PAST + 14 * 86400 * 10**6
    JournalFiles(root, "a", "aa").seal(some(40, start=day))
    rounds.run_round(spark, root)
    monkeypatch.setenv("RQ_ROOT", str(root.path))
    [date] = bronze.dates(bronze.place(root).bronze("0001"))
    [text] = documents.examples_of("python", "notebook", documents.GUIDE)
    exec(text.replace("2026-01-02", date), {"spark": spark})
    told = capsys.readouterr().out
    assert "|queue|" in told
    assert told.count("|    a|") == len(
        {one["cause"] for one in lines(root) if "cause" in one}
    )
