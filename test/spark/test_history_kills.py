"""Rounds of the history that are killed: each sealed event is in bronze once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import duckdb
import psutil
import pyarrow.dataset as ds
import pytest
from harness import history_reference as reference
from harness.journal_files import START, JournalFiles, life, lines
from harness.waiting import wait_until

from rq import published
from rq.layout import Root
from rq.spark import bronze, scratch
from rq.spark.rounds import run_round

PATIENCE = 240.0  # seconds: a busy machine starts Spark slowly


class Rounds:
    """A root whose journal grows, and rounds in processes of their own."""

    def __init__(self, root, env):
        self.root = root
        self.env = {**os.environ, **env, "RQ_ROOT": str(root.path)}
        self.journal = JournalFiles(root, "a", "aa")
        self.torn = self.journal.queue.journal
        self.torn.mkdir(parents=True)
        self.process = None

    def grow(self, number):
        """Seal a segment; leave behind it one that is being written, cut in a line."""
        first = self.journal.last
        self.journal.seal(
            event
            for index in range(number)
            for event in life(f"m{first + index}", START + index * 10**8)
        )
        ahead = JournalFiles(self.root, "a", "aa")
        ahead.last = self.journal.last
        text = ahead.segment(life("torn", START))
        for path in self.torn.iterdir():
            path.unlink()
        (self.torn / f"{self.journal.last + 1:016d}").write_bytes(text[:-30])

    def start(self):
        words = ["-m", "rq.cli", "--root", str(self.root.path), "spark", "history"]
        self.process = subprocess.Popen(
            [sys.executable, *words],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self):
        """kill -9 of the driver; Java ends with it, and so do its workers."""
        if self.process.poll() is not None:
            return  # it was quicker than who wanted to kill it
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(30)
        _, left = psutil.wait_procs(family, timeout=30)
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=30)

    def killed_when(self, fact):
        """Run a round up to where `fact` holds; return whether it was at work then."""
        self.start()
        try:
            wait_until(lambda: fact() or self.process.poll() is not None, PATIENCE)
            return self.process.poll() is None
        finally:
            self.kill()

    # ---- how far a round is

    @property
    def place(self):
        return bronze.place(self.root)

    def planned(self):
        """The batch is in the log of offsets, and nothing of it is written."""
        offsets = self.place.checkpoint("0001") / "offsets"
        return len(self.numbered(offsets)) > len(self.committed())

    def writing(self):
        """Some of the batch is written, or about to be."""
        return self.planned() and any(self.place.bronze("0001").glob("*"))

    def committed(self):
        return self.numbered(self.place.checkpoint("0001") / "commits")

    @staticmethod
    def numbered(path):
        with contextlib.suppress(FileNotFoundError):
            return [one for one in os.listdir(path) if one.isdecimal()]
        return []


@pytest.fixture
def rounds(tmp_path, spark_env):
    made = Rounds(Root(tmp_path), spark_env)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.kill()


def assert_each_event_once(spark, root):
    done = run_round(spark, root)
    place = bronze.place(root)
    current = place.current()
    source = place.bronze(current.number)
    assert list(source.glob(".spark*")) == []
    files = [
        str(path)
        for date in bronze.dates(source)
        for one in bronze.batches(source, date, current)
        for path in one.path.glob("*.parquet")
    ]
    wanted = sorted((one["journal"], one["seq"]) for one in lines(root))
    table = ds.dataset(files).to_table(columns=["journal", "seq"])
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == wanted
    counted = duckdb.execute(
        "SELECT count(*), count(DISTINCT (journal, seq)) FROM read_parquet($1)", [files]
    )
    assert counted.fetchone() == (len(wanted), len(wanted))
    read = spark.read.parquet(*files).select("journal", "seq")
    assert read.count() == read.distinct().count() == len(wanted)
    index = published.Published(published.place(root)).index()
    assert index["counts"] == reference.states(lines(root))
    assert index["events"] == len(wanted)
    return done


@pytest.mark.slow
def test_a_round_that_is_killed_while_it_writes_counts_each_event_once(spark, rounds):
    for _ in range(3):  # a busy machine may look too late
        rounds.grow(2000)
        if rounds.killed_when(rounds.writing):
            break
    else:
        pytest.fail("no round was killed while it wrote")
    local = rounds.root.spark / "local"
    [left] = [one for one in local.iterdir() if one.is_dir()]
    scratch.enter(local)
    assert not left.exists()
    rounds.grow(300)
    assert_each_event_once(spark, rounds.root)


@pytest.mark.stress
def test_kills_at_every_step_and_at_random_lose_and_double_nothing(spark, rounds):
    rnd = random.Random()
    rounds.grow(2000)
    rounds.killed_when(rounds.planned)
    rounds.grow(500)
    rounds.killed_when(rounds.writing)
    before = len(rounds.committed())
    rounds.killed_when(lambda: len(rounds.committed()) > before)
    for _ in range(3):
        rounds.grow(200)
        end = time.monotonic() + rnd.uniform(3, 20)
        rounds.killed_when(lambda end=end: time.monotonic() > end)
    rounds.grow(100)
    assert_each_event_once(spark, rounds.root)
