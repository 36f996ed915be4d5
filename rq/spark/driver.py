"""What a process of jobs keeps: the job of its script, and the Spark that it runs on."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rq.spark import duck, leftovers, machine
from rq.spark import session as sessions
from rq.spark.duck_tables import DuckTables
from rq.spark.functions import DUCKDB
from rq.spark.machine import Engine
from rq.spark.packages import Tell
from rq.spark.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rq.spark.job_file import Job


class Driver:
    """A job and its Spark, each made when it is first asked for."""

    def __init__(self, load: Callable[[Tell], Job]) -> None:
        self._load = load
        self._job: Job | None = None
        self._session: SparkSession | None = None
        self._added: frozenset[str] = frozenset()  # for all tasks, by its start
        self._engine: Engine | None = (
            None  # what its Spark runs on, when it was started
        )

    def job(self, tell: Tell) -> Job:
        """Return the job in the script, which is run when it is asked for first; `tell`
        hears what takes a while."""
        if self._job is None:
            self._job = self._load(tell)
        return self._job

    @property
    def loaded(self) -> Job | None:
        """The job, if it was asked for before."""
        return self._job

    @property
    def is_warm(self) -> bool:
        """Whether a Spark was started, and has not ended since."""
        session = self._session
        # A job may have stopped its context, which does not end Java.
        is_whole = session is not None and session.sparkContext._jsc is not None
        return is_whole and machine.java_runs()

    def tables(self, tell: Tell, readable: Iterable[Path]) -> Tables:
        """Return the tables of one call, whose files lie in `readable`; `tell` hears what
        takes a while."""
        job = self.job(tell)
        if job.engine == DUCKDB:
            within = duck.limits()
            return DuckTables(duck.session(within, readable), within.threads)
        from rq.spark.spark_tables import SparkTables

        if self.is_warm:
            return SparkTables(self._another())
        tell("starting Spark")
        return SparkTables(self._start(job))

    def _start(self, job: Job) -> SparkSession:
        """Start Spark; return its session. What was there before is ended."""
        self.close()
        self._session = job.session()
        self._engine = machine.engine(self._session)
        self._added = leftovers.added(self._session.sparkContext)
        return self._session

    def _another(self) -> SparkSession:
        """Return a session on the Spark that runs, with settings, views and functions of
        its own."""
        assert self._session is not None
        return sessions.another(self._session)

    def failure(self, error: Exception) -> str | None:
        """Return what has broken under a job, what it had, and what to do about it; None:
        nothing did, the error is of the job."""
        if self._engine is not None:
            return machine.failure(error, self._engine)
        return duck.failure(error)

    def forget(self) -> None:
        """Take away what a message has left in Spark; end it if that cannot be."""
        if not self.is_warm or self._session is None:
            return
        context = self._session.sparkContext
        try:
            leftovers.remove(self._session)
            is_clean = leftovers.added(context) == self._added
        except Exception:  # noqa: BLE001 - the message has ended, the next needs a Spark
            traceback.print_exc()
            is_clean = False
        if not is_clean:
            self.close()

    def close(self) -> None:
        """End Spark; what was said holds, however that goes."""
        session, self._session = self._session, None
        if session is not None:
            try:
                sessions.close(session)
            except Exception:  # noqa: BLE001 - the last step of a process or a message
                traceback.print_exc()
