"""`rq spark try`: a job on local folders, without a daemon; nothing is sent."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path

from rq import config
from rq.config import files
from rq.errors import BadInput, RQError
from rq.scripts.pipe import Verb
from rq.spark import given, job_file, jobs, sending, table_places, table_rights, targets
from rq.spark.driver import Driver
from rq.spark.given import Batch
from rq.spark.job_file import Job
from rq.spark.progress import Progress
from rq.spark.sending import Letter
from rq.spark.tables import Tables
from rq.spark.work import RESULTS, Work
from rq.spark.writes import TABLES
from rq.tables import Name
from rq.words.wording import several

WRITTEN = "written"  # directory of tables, in the working directory
_MARK = ".rq-try"  # a file in a directory whose results are those of tries
Print = Callable[[str], None]


class Console:
    """The outlet of a job that is tried: a person reads what it says."""

    schemas = None  # it has no queue for which some are kept

    def __init__(self, job: Job, batch: Batch, tell: Print) -> None:
        self._driver = Driver(lambda _: job)
        self._batch = batch
        self._tell = tell
        self._tables: Tables | None = None
        self.progress = Progress(lambda text: tell(f"run {text}"), self._leave)

    def say(self, verb: Verb, text: str) -> None:
        self._tell(f"{verb} {text}")

    def tables(self) -> Tables:
        if self._tables is None:
            self._tables = self._driver.tables(_unsaid, self._batch.readable)
            self.progress.start()
            self.progress.watch(self._tables.watched)
        return self._tables

    def place(self, where: str) -> str:
        return targets.tried(where, Path.cwd() / WRITTEN)

    def table(self, name: str) -> str:
        return str(Path.cwd() / WRITTEN / TABLES / name)

    def table_to_read(self, name: str) -> str:
        """Return that of the queue: a person tries the job, with his own rights."""
        (owner, plain), root = table_rights.named(name), config.find_root(None)
        return table_places.of(root, Name(owner, plain)) if owner else self.table(plain)

    def _leave(self, why: str) -> None:
        self._tell(f"resend 60-{why}")
        os._exit(1)

    def failed(self, q: Work) -> None:
        with contextlib.suppress(Exception):  # Java may be gone
            self._tell(f"result {q.figures([])}")

    def close(self) -> None:
        if self._tables is not None:
            self.progress.stop()
            self._tables.close()
        self._driver.close()


def _unsaid(_text: str) -> None:
    """A person sees that it starts."""


def run(script: Path, messages: Path, out: Path, tell: Print, complain: Print) -> bool:
    """Run a script on the messages in a folder; what it would send goes to `out`. Return
    whether a message is err; `complain` hears why all of them are."""
    job = job_file.load(script.absolute(), tell)
    batch = given.from_folder(messages.absolute())
    tell(f"{several(len(batch.messages), 'message')} from {messages}")
    out.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    console = Console(job, batch, tell)
    _clear(out.absolute())
    os.chdir(out)  # where a queue's script finds itself: in a directory of its own
    try:
        q = jobs.call(job, batch, console, batch.messages)
        with contextlib.closing(q.writes):
            q.writes.decide(sending.origin(q.queue, q.batch_id, q.remaining))
            q.writes.publish()
        figures = q.figures([])  # some are asked from the engine, which ends below
    except (Exception, SystemExit) as error:  # noqa: BLE001 - what a queue says with err
        # Before the session ends: the text of an error of Spark is asked from Java.
        complain(f"err {_why_all(error)}")
        return True
    finally:
        os.chdir(before)
        console.close()
    for msg_id, (verb, text) in q.endings.items():
        tell(f"msg {msg_id} {verb} {text}")
    for letter in q.letters:
        tell(_described(letter))
    for table in q.writes.tables:
        tell(f"would write {several(table.rows, 'row')}, now in {table.stage.where}")
    if q.remaining:
        tell(f"result {figures}")
        tell(f"done, {several(len(q.remaining), 'message')}")
    return any(verb is Verb.ERR for verb, _ in q.endings.values())


def _clear(out: Path) -> None:
    """Remove what an earlier try has left, and nothing else."""
    places = [out / name for name in (WRITTEN, RESULTS)]
    if not (out / _MARK).exists():
        for place in filter(Path.exists, places):
            raise BadInput(
                f"{place} is not of an earlier try: name another directory by --out"
            )
        (out / _MARK).touch()
    for place in places:
        files.remove_dir(place)


def _why_all(error: Exception | SystemExit) -> str:
    """Return why a queue would end all messages as err; raise an error again with which
    it would not, or that is about this machine and not the job."""
    if isinstance(error, SystemExit):
        return jobs.of_exit(error.code)
    if isinstance(error, RQError):
        if not isinstance(error, BadInput):
            raise error
        return str(error)
    traceback.print_exc()
    return jobs.last_line(error)


def _described(letter: Letter) -> str:
    fields = f" {json.dumps(letter.fields)}" if letter.fields else ""
    files = "".join(
        f"\n  {os.path.relpath(file)} ({file.stat().st_size:,} bytes)"
        for file in letter.files
    )
    return f"would send to {letter.dest}{fields}{files}"
