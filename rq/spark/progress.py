"""Tell how far a job is, from the side, and end it when that is wanted."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

PAUSE = 0.5  # seconds between looks: two lines a second at most
PATIENCE = 5.0  # seconds for the job's own code to notice that it was cancelled
WAIT = (
    120.0  # seconds that a job waits for its cluster: `patience` of the queue's `spark`
)
_ALONE = 30.0  # seconds without an executor until that is said, and again
_START = 60.0  # seconds beside WAIT for a start: as long Spark itself asks a master

Say = Callable[[str], None]


class Watched(Protocol):
    """What is at work for a job."""

    def far(self) -> str:
        """Return how far it is; nothing, if that cannot be told."""

    def over(self) -> str:
        """Return why it is not waited for any longer; nothing, if it is."""

    def cancel(self) -> None:
        """End what it does now."""


def patience() -> float:
    """Return for how many seconds a job waits for its cluster."""
    return float(os.environ.get("RQ_SPARK_PATIENCE") or WAIT)


class Starting:
    """A Spark that is being started: nothing of it can be asked, or ended."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _START + patience()

    def far(self) -> str:
        return ""

    def over(self) -> str:
        if time.monotonic() < self._until:
            return ""
        return f"Spark has not started in {_START + patience():.0f} s"

    def cancel(self) -> None:
        """Leave it: its Java ends with this process."""


class OnSpark:
    """Spark at work, since it was first looked at."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._session = session
        # Jobs of Spark, of earlier messages.
        self._before = frozenset(_jobs(self._context.statusTracker()))
        self._alone = Alone(patience())

    def far(self) -> str:
        alone = self._alone.text(is_alone(self._session), time.monotonic())
        return alone or summary(self._context.statusTracker(), self._before)

    def over(self) -> str:
        return self._alone.over(time.monotonic())

    def cancel(self) -> None:
        self._context.cancelAllJobs()


class Progress:
    """A thread that looks at what is at work and says what changes.

    What is waited for longer than it may be is ended as a cancelled job is, and `given_up`
    says why; if the job's own code does not notice that, `leave` ends the process.
    """

    def __init__(self, say: Say, leave: Say) -> None:
        self._say = say
        self._leave = leave
        self._watched: Watched | None = None
        self._last = ""
        self._turn = threading.Lock()  # of saying something, and of the end
        self._ended = threading.Event()
        self.cancelled = threading.Event()
        self.given_up = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def watch(self, watched: Watched) -> None:
        """Look at something from now on."""
        self._watched = watched

    def stop(self) -> None:
        """Say nothing more, also not what is being looked at."""
        with self._turn:
            self._ended.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        since = None
        while not self._ended.wait(PAUSE):
            if self.cancelled.is_set() or self.given_up:
                since = time.monotonic() if since is None else since
            try:
                self._look(since)
            except Exception as error:  # noqa: BLE001 - a loop iteration
                self._watched = None
                sys.stderr.write(f"progress cannot be shown any more: {error}\n")

    def _look(self, since: float | None) -> None:
        watched = self._watched
        if since is not None:
            self._cancel(watched, since)
        elif watched is not None:
            text = watched.far()
            if text not in ("", self._last):
                self._last = text
                self._tell(text)
            self.given_up = watched.over()

    def _tell(self, text: str) -> None:
        with self._turn:
            if not self._ended.is_set():
                self._say(text)

    def _cancel(self, watched: Watched | None, since: float) -> None:
        """End what runs, again and again: the job may start another."""
        if time.monotonic() - since > PATIENCE:
            # Nothing else ends the main thread while it waits in foreign code; Java ends
            # with the pipe that it holds of this process.
            with self._turn:
                if not self._ended.is_set():
                    self._leave(self.given_up)
        if watched is not None:
            watched.cancel()


class Alone:
    """How long a job has been without an executor, and for how many seconds it may be."""

    def __init__(self, most: float) -> None:
        self._since: float | None = None
        self._most = most

    def text(self, alone: bool, now: float) -> str:
        """Return what to say of it at `now`, a monotonic time; nothing at first."""
        if not alone:
            self._since = None
            return ""
        self._since = now if self._since is None else self._since
        seconds = (now - self._since) // _ALONE * _ALONE
        if not seconds:
            return ""
        left = max(0.0, self._most - seconds)
        return (
            f"no executor for {seconds:.0f} s: the cluster has given none; its workers may "
            "be down, busy with others, or smaller than spark.executor.memory asks; in "
            f"{left:.0f} s this attempt ends"
        )

    def over(self, now: float) -> str:
        """Return why the job is not to wait any longer at `now`; nothing, if it is."""
        if self._since is None or now - self._since < self._most:
            return ""
        return (
            f"no executor for {self._most:.0f} s: the cluster has given none, so the "
            "application was ended: look at its master and workers, or let it wait longer "
            'by "spark": {"patience": "10m"}'
        )


def is_alone(session: SparkSession) -> bool:
    """Whether a job of Spark runs on a cluster that has given it no executor."""
    context = session.sparkContext
    if context.master.startswith("local"):
        return False
    if not context.statusTracker().getActiveJobsIds():
        return False
    with_driver = int(context._jsc.sc().getExecutorMemoryStatus().size())
    return with_driver < 2


def summary(tracker: StatusTracker, before: Collection[int] = ()) -> str:
    """Return `2/4 stages, 120/200 tasks, 1 failed`; nothing before the first stage. Jobs
    of Spark that are in `before` do not count."""
    stages = ended = tasks = completed = failed = 0
    for number, is_over in _stages(tracker, before).items():
        info = tracker.getStageInfo(number)
        stages += 1
        if info is None:  # skipped, or not begun
            ended += is_over
            continue
        tasks += info.numTasks
        completed += info.numCompletedTasks
        failed += info.numFailedTasks
        ended += info.numCompletedTasks >= info.numTasks
    if not stages:
        return ""
    text = f"{ended}/{stages} stages, {completed}/{tasks} tasks"
    return f"{text}, {failed} failed" if failed else text


def _jobs(tracker: StatusTracker) -> list[int]:
    return [int(job) for job in tracker.getJobIdsForGroup(None)]


def _stages(tracker: StatusTracker, before: Collection[int]) -> dict[int, bool]:
    """Return the stages of all jobs, and whether a job of theirs has succeeded."""
    stages: dict[int, bool] = {}
    for job in _jobs(tracker):
        if job in before:
            continue
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            stages[stage] = stages.get(stage, False) or info.status == "SUCCEEDED"
    return stages
