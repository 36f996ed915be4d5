"""A snapshot of a broker: what lives, in one file, so that the journal before it can go.

The first line is a checkpoint of the journal, and tells from which event on the journal
is to be read. What comes then was written in slices while the broker went on: a line may
tell more than that event knew. As all lines hold absolute values, reading the journal
over it ends right.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rq import durable
from rq.broker import lines
from rq.broker.jobs import Job, Jobs, State
from rq.broker.lines import Added, Event, Given, Paused, Queued
from rq.journal import checkpoint, line
from rq.journal.checkpoint import Checkpoint

_SEED = line.seed("", "snapshot")
_JOBS = 200  # in a slice
_WHOLE = "whole"  # the last line, with the number of those before it


def of_job(job: Job) -> Iterator[Event]:
    """Give the events that make a job what it is."""
    due, queued = job.due, job.state is State.QUEUED
    yield Added(
        job.job_id,
        job.queue.name,
        job.body,
        job.ctime,
        job.created,
        job.expires - job.created,
        job.retry,
        job.delay,
        due,
        queued and not (job.nacks or job.deliveries),
    )
    if job.nacks or job.deliveries or (job.was_queued and not queued):
        yield Queued(job.job_id, due, job.nacks, job.deliveries)
        if not queued:
            yield Given((job.job_id,))


class Writing:
    """A snapshot on its way to disk, a slice at a time."""

    def __init__(self, path: Path, point: Checkpoint, jobs: Jobs) -> None:
        self.point = point
        self._path = path
        self._tmp = path.with_name(".snapshot.tmp")
        self._file = self._tmp.open("wb")
        self._file.write(point.encode())
        self._jobs = jobs
        self._left = list(jobs.by_id)
        self._written = 0
        self._queues()

    def _queues(self) -> None:
        for queue in list(self._jobs.queues.values()):
            if queue.into or queue.out:
                self._put(Paused(queue.name, queue.into, queue.out))

    def _put(self, event: Event) -> None:
        self._file.write(line.sealed(line.body(lines.record(event)), _SEED))
        self._written += 1

    def write_slice(self) -> bool:
        """Write some jobs; return whether more are left."""
        for job_id in self._left[-_JOBS:]:
            job = self._jobs.by_id.get(job_id)
            for event in of_job(job) if job is not None else ():
                self._put(event)
        del self._left[-_JOBS:]
        return bool(self._left)

    def finish(self) -> None:
        """Let it be the snapshot, durably; OSError: the one before stands. May be called
        in a thread."""
        self._file.write(line.sealed(line.body({_WHOLE: self._written}), _SEED))
        self._file.flush()
        durable.sync_open(self._file.fileno())
        self._file.close()
        durable.crash_point("snapshot:before-rename")
        durable.rename_durable(self._tmp, self._path)
        durable.crash_point("snapshot:renamed")

    def abandon(self) -> None:
        """Leave the one before as it is."""
        self._file.close()
        durable.unlink(os.fspath(self._tmp))


def read(path: Path, jobs: Jobs, now: float) -> Checkpoint | None:
    """Let what a snapshot tells be true; None when there is none, or it is not whole:
    then `jobs` are of no use. OSError: it cannot be read now."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return None
    with file:
        point = checkpoint.decode(file.readline())
        return point if point is not None and _read(file, jobs, now) else None


def _read(file: BinaryIO, jobs: Jobs, now: float) -> bool:
    for count, text in enumerate(file):
        fields = line.read_object(text, _SEED)
        if fields is None:
            return False
        if _WHOLE in fields:
            return fields[_WHOLE] == count
        event = lines.event(fields)
        if event is not None:
            jobs.apply(event, now)
    return False
