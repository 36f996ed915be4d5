"""A queue whose job writes a table by days, for tests that make days again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import duckdb as db

from harness.checkout import CHECKOUT
from harness.spark_jobs import HEAD
from rq import days
from rq.days import Days
from rq.layout import Root
from rq.spark import again, day_files, given, jobs, sending
from rq.spark.again import Again
from rq.spark.driver import Driver
from rq.spark.job_file import load
from rq.spark.progress import Progress
from rq.words.states import State

JOB = """
@job(engine="duckdb")
def run(q):
    rows = q.parse(q.lines(), r"(?P<day>\\S+) (?P<n>\\d+)")
    q.write(rows.select("day", "n", "msg_id"), "{out}", by="day")
"""
MON, TUE = "2026-11-02", "2026-11-03"


KILLED = """
import importlib, os, signal, sys
from pathlib import Path
from rq.layout import Root
from rq.spark import again

module, _, names = sys.argv[1].partition(":")
*above, name = names.split(".")
holder = importlib.import_module("rq." + module)
for each in above:
    holder = getattr(holder, each)
act, seen = getattr(holder, name), []

def and_die(*args, **options):
    seen.append(args)
    if len(seen) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return act(*args, **options)

setattr(holder, name, and_die)
root, script = Root(Path(os.environ["RQ_ROOT"])), Path(sys.argv[3])
again.run(again.Again(root=root, queue="logs", day="2026-11-02", script=script), print)
"""


def kill_at(step, nth, script):
    """Make Monday again in a process that is killed when it comes to a step, MODULE:NAME, so
    often."""
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "test")])
    words = [sys.executable, "-c", KILLED, step, str(nth), str(script)]
    ended = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert ended.returncode == -signal.SIGKILL


def kept_message(root, number, lines):
    """Keep a message of the queue `logs` that is done, with a log of these lines; return
    its id."""
    msg_id = f"20261102.1000.00.000.{1_000_000_000_000 + number}"
    folder = root.queue("logs").message(State.DONE, msg_id)
    (folder / "attach").mkdir(parents=True)
    (folder / "msg").write_text(json.dumps({"src": "a"}))
    (folder / "attach/log").write_text("".join(f"{line}\n" for line in lines))
    return msg_id


class Place:
    """A queue whose messages have ended, and the table that its job writes."""

    def __init__(self, top, out=None):
        """`out`: where the table is, if that is not beside the root."""
        self.root = Root(top / "root")
        self.out = out or top / "out"
        self.script = top / "run"
        self.code()
        self.noted = Days(self.root, "logs")
        self._sent = 0

    def code(self, change=lambda text: text):
        self.script.write_text(HEAD + change(JOB.replace("{out}", str(self.out))))

    def message(self, *lines):
        """Keep a message that is done, with a log of these lines."""
        self._sent += 1
        return kept_message(self.root, self._sent, lines)

    def batch(self, *ids):
        """Let the job write what a batch of these messages brings."""
        queue = self.root.queue("logs")
        messages = [given.of_folder(i, days.kept(queue, i)) for i in ids]
        driver = Driver(lambda tell: load(self.script, tell))
        progress = Progress(print, print)
        job = driver.job(print)
        batch = given.Batch(f"b{ids[0][-3:]}", "logs", tuple(messages))
        desk = again.Desk(driver, progress, batch)
        q = jobs.call(job, batch, desk, messages)
        about = day_files.of_script(job.digest, list(ids))
        q.writes.decide(sending.origin("logs", batch.batch_id, messages), ids, about)
        q.writes.publish()
        q.writes.close()
        desk.close()

    def again(self, day):
        wanted = Again(root=self.root, queue="logs", day=day, script=self.script)
        return again.run(wanted, print)

    def rows(self):
        """Return what readers see: of all files, and of those that manifests name."""
        every = [str(path) for path in self.out.rglob("day=*/*.parquet")]
        named = [
            str(self.out / file["file"])
            for path in self.out.glob("_rq/*.json")
            for file in json.loads(path.read_text())["files"]
        ]
        assert sorted(every) == sorted(named)
        if not every:
            return []
        query = "SELECT CAST(day AS VARCHAR), CAST(n AS INT) FROM read_parquet($1, hive_partitioning=true)"
        return sorted(db.connect().execute(query, [every]).fetchall())

    def state(self, day):
        [view] = self.noted.views([day], days.digest(self.script), 1000)
        return view["state"]

    def two(self):
        """Let there be two batches, both of which are in two days; return the place."""
        for n in (1, 3):
            first = self.message(f"{MON} {n}", f"{TUE} {n}")
            other = self.message(f"{MON} {n + 1}")
            self.batch(first, other)
        return self


def tenfold(text):
    """Change a job, so that its numbers are ten times what they were."""
    return text.replace('"n", "msg_id"', 'F.expr("CAST(n AS INT) * 10").alias("n")')


ALL = [(MON, 1), (MON, 2), (MON, 3), (MON, 4), (TUE, 1), (TUE, 3)]
NEW = [(MON, 10), (MON, 20), (MON, 30), (MON, 40), (TUE, 1), (TUE, 3)]
