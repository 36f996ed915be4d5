"""A queue that starts a job for a message as often as it comes, in the process of a test."""

from __future__ import annotations

from types import SimpleNamespace

from harness.delta_jobs import Desk
from rq.spark import jobs
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job


class Queue(Desk):
    """The outlet of a job that a queue has started."""

    schemas = None
    progress = SimpleNamespace(cancelled=SimpleNamespace(is_set=lambda: False))

    def __init__(self, tables, function):
        super().__init__(tables)
        self.job = Job(function)

    def say_of(self, msg_id, verb, text):
        pass


def start(tables, root, function, msg_id="m1"):
    """Let a queue start a job for a message, as often as it comes."""
    folder = root / "queue/logs/run" / msg_id
    (folder / "job").mkdir(parents=True, exist_ok=True)
    batch = Batch("b1", "logs", (Given(msg_id, folder),))
    jobs.work(batch, Queue(tables, function))
