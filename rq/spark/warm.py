"""A job that stays: a process takes messages or batches, one by one, on a warm Spark.

For queues with `"worker": "persistent"`; what it reads and says is what any long-lived
worker does. Source: docs/reference/workers.md.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from rq.scripts.pipe import Verb
from rq.spark import given, job_file, jobs
from rq.spark.driver import Driver
from rq.spark.jobs import Pipe

IDLE = 300.0  # seconds without a message until the memory of Java is given back
_SAY, _HEAR = 3, 4
_READY = b"ready\n"
_PIECE = 65_536
_OF_SPARK = ("SPARK_", "PYSPARK_", "RQ_SPARK_", "PYTHONPATH", "JAVA_HOME", "TZ")


def is_wanted(env: Mapping[str, str]) -> bool:
    """Whether a queue has started this process to stay: no message came with it."""
    return "RQ_SHARE" in env and not ("RQ_MSG_ID" in env or "RQ_BATCH" in env)


def main(script: Path) -> int:
    """Take messages until the queue has no more; return the exit status."""
    worker = Worker(script, float(os.environ.get("RQ_SPARK_IDLE", IDLE)))
    signal.signal(signal.SIGTERM, worker.end)
    try:
        return worker.serve()
    finally:
        worker.driver.close()


class Worker:
    """A process of a queue's job, between its first message and its last."""

    def __init__(self, script: Path, idle: float) -> None:
        self._script = script
        self.driver = Driver(lambda tell: job_file.load(script, tell))
        self._idle = idle
        self._pipe: Pipe | None = None  # of the message that is worked on
        self._rest = b""  # of what was read, after its last line

    def serve(self) -> int:
        """Work on message after message; return the exit status."""
        while (line := self._next()) is not None:
            values: dict[str, str] = json.loads(line)
            if not self._work(values):
                return 0  # the queue starts another, with a Java of its own
        return 0

    def end(self, _number: int, _frame: FrameType | None) -> None:
        """Leave, by SIGTERM: at once, or when Spark has given up what it works on."""
        if self._pipe is None:
            sys.exit(0)
        self._pipe.progress.cancelled.set()

    def _work(self, values: Mapping[str, str]) -> bool:
        """Work on one message; return False when Spark is not fit for another."""
        if "RQ_MSG_DIR" not in values:
            _write(b'err a job needs a directory: take "worker_dir": false away\n')
            return True
        before, threads = dict(os.environ), _threads()
        os.environ.update(values)
        os.chdir(values["RQ_MSG_DIR"])
        signal.signal(signal.SIGTERM, self.end)  # a job may have taken it
        self._pipe = pipe = Pipe(_SAY, given.from_queue(os.environ), self.driver)
        try:
            fit = jobs.attempt(pipe)
            if pipe.progress.cancelled.is_set():
                sys.exit(1)
            self.driver.forget()
        finally:
            self._pipe = None
            _restore(before)
            os.chdir("/")
        if left := _threads() - threads:
            names = ", ".join(sorted(thread.name for thread in left))
            sys.stderr.write(f"this process ends: the job has left threads: {names}\n")
            os._exit(0)  # no message waits for them
        return fit is not Verb.RESEND

    def _next(self) -> bytes | None:
        """Return the line of the next message; None at the end, or when that message is
        for a process with other packages: of its line nothing is read then."""
        sys.stdout.flush()
        sys.stderr.flush()
        _write(_READY)
        while b"\n" not in self._rest:
            if not self._comes():
                self._give_back()
                continue
            if not self._rest and self._is_outdated():
                return None
            data = os.read(_HEAR, _PIECE)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _give_back(self) -> None:
        """End Spark, and say so in the log of the queue."""
        sys.stderr.write(f"Spark ended: no message for {self._idle:g} seconds\n")
        self.driver.close()

    def _comes(self) -> bool:
        """Wait for a message as long as Spark may be idle; False: none has come."""
        patience = self._idle if self.driver.is_warm else None
        return bool(select.select([_HEAR], [], [], patience)[0])

    def _is_outdated(self) -> bool:
        """Whether the script asks for other packages than this process has; say so in the
        log of the queue."""
        job = self.driver.loaded
        if job is None or not job_file.is_outdated(job, self._script):
            return False
        sys.stderr.write("this process ends: its script asks for other packages\n")
        return True


def _threads() -> set[threading.Thread]:
    """Return the threads that would keep this process from its end."""
    return {thread for thread in threading.enumerate() if not thread.daemon}


def _restore(before: Mapping[str, str]) -> None:
    """Let the environment be what it was, but for what Spark was started with."""
    for name in os.environ.keys() - before.keys():
        if not name.startswith(_OF_SPARK):
            del os.environ[name]
    for name, value in before.items():
        if not name.startswith(_OF_SPARK):
            os.environ[name] = value


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_SAY, data) :]
