"""A day of a queue's tables, made again from the messages that went into it, as one commit.

1. The day is locked: it is made again by one process at a time.
2. What an earlier one has decided and not carried out is carried out.
3. The batches are listed of which the day is made.
4. The job's function is called for each of them, with its own messages. The files of this
   day are kept, under names that no reader sees; those of other days go.
5. If the day is made of other batches by now, from 3 again. Batches that came meanwhile
   stay beside it.
6. One decision says which files come and which go; it is carried out as any other (`writes`),
   after a kill by the next process of this queue that writes, or makes a day again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rq import config, days
from rq.config import files
from rq.days import Batch, Days, Part, Standing
from rq.errors import BadInput, Busy, RQError
from rq.layout import Root
from rq.scripts.pipe import Verb
from rq.spark import (
    day_files,
    delta_days,
    given,
    job_file,
    jobs,
    kept_schemas,
    sending,
    table_rights,
    writes,
)
from rq.spark.delta_days import Taken
from rq.spark.driver import Driver
from rq.spark.given import Given
from rq.spark.job_file import Job
from rq.spark.progress import Progress
from rq.spark.tables import Tables
from rq.spark.work import Work
from rq.spark.writes import Writes
from rq.words.nesting import Json
from rq.words.wording import several

_LOOK = 1.0  # seconds between looks whether it was cancelled
_PLANS = 3  # times that a day may turn out to be made of other batches
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A day that is to be made again."""

    root: Root
    queue: str
    day: str
    script: Path
    backfill: str = ""  # the command that wants it


class Desk:
    """The outlet of a job whose messages have ended: it says nothing of them."""

    def __init__(self, driver: Driver, progress: Progress, batch: given.Batch) -> None:
        self._driver = driver
        self._progress = progress
        self._batch = batch
        self.schemas = kept_schemas.of_queue(batch.queue)
        self._tables: Tables | None = None

    def say(self, _verb: Verb, _text: str) -> None:
        """Progress of the job is that of a batch, which is one of many here."""

    def failed(self, q: Work) -> None:
        """The day fails, and keeps its rows."""

    def tables(self) -> Tables:
        if self._tables is None:
            self._tables = self._driver.tables(_unsaid, self._batch.readable)
            self._progress.watch(self._tables.watched)
        return self._tables

    def place(self, where: str) -> str:
        return where

    def table(self, name: str) -> str:
        queue = self._batch.queue
        return table_rights.place(queue, name, table_rights.WRITES)

    def table_to_read(self, name: str) -> str:
        queue = self._batch.queue
        return table_rights.place(queue, name, table_rights.READS)

    def close(self) -> None:
        if self._tables is not None:
            self._tables.close()


def _unsaid(_text: str) -> None:
    """What takes a while at a start of Spark is no news for each batch."""


def run(again: Again, tell: Tell) -> str:
    """Make a day again; return what that has brought. Busy, BadInput, or whatever the
    job raises: then the day is as it was."""
    noted = Days(again.root, again.queue)
    held = noted.lock(again.day)
    if held is None:
        raise Busy(f"{again.day} is being made again by another process")
    try:
        writes.carry_out(again.queue)
        noted.say(again.day, Standing.RUNNING, "")
        return _run(again, noted, tell)
    finally:
        os.close(held)


def _run(again: Again, noted: Days, tell: Tell) -> str:
    driver = Driver(lambda say: job_file.load(again.script, say))
    progress = Progress(tell, lambda why: os._exit(1))
    progress.start()
    try:
        text = _planned(again, noted, _Calls(driver, progress, tell))
    except (Exception, SystemExit) as error:
        noted.say(again.day, Standing.FAILED, reason(error, driver))
        raise
    finally:
        progress.stop()
        driver.close()
    noted.say(again.day, Standing.DONE, text)
    return text


def reason(error: BaseException, driver: Driver | None = None) -> str:
    """Return why a day was not made again, in one line."""
    if isinstance(error, SystemExit):
        return jobs.of_exit(error.code)
    assert isinstance(error, Exception)
    broken = driver.failure(error) if driver is not None else None
    return broken or (
        str(error) if isinstance(error, RQError) else jobs.last_line(error)
    )


def _planned(again: Again, noted: Days, calls: _Calls) -> str:
    for _ in range(_PLANS):
        made_of = _inputs(again, noted)
        if not made_of.calls:
            raise BadInput(
                f"{again.day}: no batch of {again.queue} has put a row into it"
            )
        text = _commit(again, noted, made_of, calls)
        if text is not None:
            return text
    raise Busy(f"{again.day}: others write it again and again; say it later once more")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    """What a day is made of."""

    batches: Sequence[Batch]
    called: int  # how many of them
    calls: Sequence[Sequence[str]]  # of the job: the ids of the messages of each
    tables: Sequence[Taken]  # of Delta, with the files that go

    @property
    def names(self) -> set[str]:
        return {batch.name for batch in self.batches}


def _inputs(again: Again, noted: Days) -> _Inputs:
    """Return the batches of a day. Those of which no row is left in a table of Delta, for
    others have replaced them, are not called."""
    batches = noted.inputs(again.day)
    tables = list(_taken(again.day, [part for b in batches for part in b.parts]))
    deltas = {table.where for table in tables}
    there = {(t.where, manifest) for t in tables for manifest in t.manifests}
    called = [
        batch
        for batch in batches
        if any(p.place not in deltas or (p.place, p.manifest) in there or not p.rows
               for p in batch.parts)
    ]  # fmt: skip
    # Two days that were made again in parts may name the same messages.
    calls = dict.fromkeys(tuple(group) for batch in called for group in batch.groups)
    return _Inputs(
        batches=batches, called=len(called), calls=list(calls), tables=tables
    )


def _taken(day: str, parts: Sequence[Part]) -> Iterator[Taken]:
    """Give the tables of Delta that have rows of a day."""
    for where in dict.fromkeys(part.place for part in parts):
        rows = {part.manifest: part.rows for part in parts if part.place == where}
        table = delta_days.taken(where, day, rows)
        if table is not None:
            yield table


def _commit(again: Again, noted: Days, made_of: _Inputs, calls: _Calls) -> str | None:
    """Make a day again of batches; None if it is made of others by now."""
    whole = _Whole(again.queue, f"day-{again.day}")
    with contextlib.closing(whole):
        calls.make(again, made_of.calls, whole)
        whole.tables = of_day(whole, again.day, made_of.tables)
        about = day_files.of_day(
            again.day, calls.job.digest, made_of.batches, made_of.calls
        )
        if not made_of.names <= {batch.name for batch in noted.inputs(again.day)}:
            return None
        ids = [msg_id for group in made_of.calls for msg_id in group]
        noted.expect(whole.key)
        whole.decide(_origin(again, ids), ids, about)
        is_seen = whole.publish()
        noted.settle(whole.key)
    if not is_seen:
        return None
    rows = sum(table.rows for table in whole.tables)
    of = f"{several(len(ids), 'message')} in {several(made_of.called, 'batch')}"
    return f"{several(rows, 'row')} of {of}{calls.unsent}"


def _origin(again: Again, ids: Sequence[str]) -> dict[str, Json]:
    messages = [Given(msg_id, Path()) for msg_id in ids]
    origin = sending.origin(again.queue, f"day-{again.day}", messages)
    return {**origin, "day": again.day, "backfill": again.backfill}


def of_day(whole: Writes, day: str, old: Sequence[Taken] = ()) -> list[writes.Table]:
    """Return the tables that were written with the files of one day alone; at least one,
    which says that the day has no row any more. BadInput: none is parted by days."""
    parted = [table for table in whole.tables if table.stage.by]
    if not parted and not old:
        raise BadInput('the job writes no table by days: q.write(…, by="day")')
    plain = [
        replace(table, files=[f for f in table.files if days.day_of(f.folder) == day])
        for table in parted
        if table.plan is None
    ]
    every = [*plain, *_of_delta(whole, parted, day, old)]
    return [table for table in every if _does_something(table)] or every[:1]


def _does_something(table: writes.Table) -> bool:
    return bool(table.files or (table.plan and table.plan.removes))


def _of_delta(
    whole: Writes, parted: Sequence[writes.Table], day: str, old: Sequence[Taken]
) -> Iterator[writes.Table]:
    """Give what takes the place of a day of each table of Delta: one commit for each."""
    taken = {table.where: table for table in old}
    written: dict[str, list[writes.Table]] = {where: [] for where in taken}
    for table in parted:
        if table.plan is not None:
            written.setdefault(table.stage.where, []).append(table)
    for number, (where, mine) in enumerate(written.items()):
        key = f"{whole.key}/none-{number}"
        yield delta_days.merged(mine, taken.get(where), day, key)


class _Whole(Writes):
    """The writes of all calls of a day."""

    def since(self, name: str) -> tuple[float | None, float]:
        raise BadInput(
            f"q.since_last: {name}: a day is made again of its messages, not of a time"
        )


class _Calls:
    """Calls of a job's function, one for each call of before."""

    def __init__(self, driver: Driver, progress: Progress, tell: Tell) -> None:
        self._driver = driver
        self._progress = progress
        self._tell = tell
        self._letters = 0

    @property
    def job(self) -> Job:
        return self._driver.job(self._tell)

    @property
    def unsent(self) -> str:
        """What is said of messages that the job would send."""
        if not self._letters:
            return ""
        verb = "was" if self._letters == 1 else "were"
        unsent = f"{several(self._letters, 'message')} {verb} not sent"
        return f"; {unsent}: a day is tables only"

    def make(self, again: Again, calls: Sequence[Sequence[str]], whole: Writes) -> None:
        """Let the tables of all batches be written, where no reader sees them."""
        self._letters = 0
        # All messages are there, or none runs.
        every = [_messages(again, group) for group in calls]
        for number, messages in enumerate(every, 1):
            text = f"batch {number:,} of {len(every):,}"
            Days(again.root, again.queue).say(again.day, Standing.RUNNING, text)
            self._tell(text)
            self._call(again, messages, whole)

    def _call(self, again: Again, messages: Sequence[Given], whole: Writes) -> None:
        whole.next_call()
        batch = given.Batch(f"day-{again.day}", again.queue, tuple(messages))
        desk = Desk(self._driver, self._progress, batch)
        q = Work(batch, desk, messages)
        q.writes = whole
        try:
            self.job.function(q)
            q.check()
        finally:
            desk.close()
        for msg_id, (verb, text) in q.endings.items():
            raise BadInput(f"{msg_id} is {verb} now: {text}")
        self._letters += len(q.letters)


def _messages(again: Again, ids: Sequence[str]) -> list[Given]:
    """Return messages that have ended; BadInput if one is gone."""
    queue = again.root.queue(again.queue)
    folders = {msg_id: days.kept(queue, msg_id) for msg_id in ids}
    gone = [msg_id for msg_id, folder in folders.items() if folder is None]
    if gone:
        raise BadInput(
            f"{gone[0]}, of which {again.day} is made, is gone (keep_sources)"
        )
    return [given.of_folder(i, folder) for i, folder in folders.items() if folder]


# ---- a process for each day


def main(words: Sequence[str]) -> int:
    """Make a day again, as `QUEUE DAY [BACKFILL [CANCELS]]` says; tell of it line by line
    on standard output, on which the job prints nothing. When it was cancelled more than
    CANCELS times it ends, also if the command that has started it was killed."""
    queue, day, *more = words
    backfill, cancels = (*more, "", "")[:2]
    lines = os.dup(1)
    os.dup2(2, 1)

    def tell(text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the command was killed
            os.write(lines, f"{' '.join(text.split())}\n".encode())

    try:
        root = config.find_root(None)
        if cancels:
            _watch(Days(root, queue), int(cancels))
        script = root.path / config.read_queue(root.queue(queue)).script
        again = Again(root=root, queue=queue, day=day, script=script, backfill=backfill)
        tell(f"done {_in_its_place(again, tell)}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the end of a process
        tell(f"failed {reason(error)}")
        return 1
    return 0


def _watch(noted: Days, cancels: int) -> None:
    """End this process, as its command would, when what makes days again is cancelled."""

    def look() -> None:
        while True:
            time.sleep(_LOOK)
            with contextlib.suppress(RQError):  # another one writes
                if noted.cancels() > cancels:
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

    threading.Thread(target=look, daemon=True).start()


def _in_its_place(again: Again, tell: Tell) -> str:
    """Make a day again in a directory of its own, which is removed."""
    work = again.root.spark / "days" / again.queue / f"{again.day}.work"
    files.make_dir(work)
    os.chdir(work)
    try:
        return run(again, tell)
    finally:
        os.chdir("/")
        files.remove_dir(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
