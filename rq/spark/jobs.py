"""Jobs in one file, called for what a queue gives them through `rq-spark SCRIPT`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rq import checks, config
from rq.checks import Checks
from rq.errors import Refused, RQError
from rq.scripts.pipe import Verb
from rq.spark import (
    attachments,
    day_files,
    duck,
    failures,
    given,
    kept_schemas,
    sending,
    table_rights,
    writes,
)
from rq.spark.driver import Driver
from rq.spark.given import Batch, Given
from rq.spark.job_file import Job, load
from rq.spark.progress import Progress, Starting
from rq.spark.queue_door import AGAIN
from rq.spark.sending import Result
from rq.spark.tables import Tables
from rq.spark.work import Outlet, Work

if TYPE_CHECKING:
    pass

Endings = dict[str, tuple[Verb, str]]
_PAUSE = 60  # seconds until a queue that takes nothing now is asked again
_CALLS = 2  # of a job's function, when files cannot be read
_WORSE = (
    Verb.RESEND,
    f"{_PAUSE}-files of this batch could be read, and could not a moment later",
)


def call(job: Job, batch: Batch, outlet: Outlet, messages: Sequence[Given]) -> Work:
    """Call a job's function; return what it wants to become of the messages.

    If a file cannot be read, all that cannot are looked for, their messages end, and the
    function is called again with the others: twice at most, however many are bad.
    """
    endings: Endings = {}
    for _ in range(_CALLS):
        left = [message for message in messages if message.msg_id not in endings]
        q = Work(batch, outlet, left)
        try:
            bad = _try(job, q) if left else {}
        except (Exception, SystemExit):
            outlet.failed(q)
            q.writes.close()
            raise
        if not bad:
            q.endings.update(endings)
            return q
        q.writes.close()
        endings |= bad
    q = Work(batch, outlet, messages)
    q.endings.update({message.msg_id: _WORSE for message in messages} | endings)
    return q


def _try(job: Job, q: Work) -> Endings:
    """Call a job's function; return how the messages end whose files cannot be read."""
    try:
        job.function(q)
        q.check()
    except Exception as error:
        first = attachments.unreadable(_cause(error, q))
        ids = [message.msg_id for message in q.messages]
        if first is None or first.msg_id not in ids:
            raise
        bad = [first, *q.strays, *q.find_bad()]
        return {entry.msg_id: _end_of(entry) for entry in bad}
    return {}


def _cause(error: Exception, q: Work) -> Exception:
    """Return what an error comes from; of one of RQ's own no engine is asked, nor started
    for that."""
    return error if isinstance(error, RQError) else q.tables.cause(error)


def _end_of(bad: attachments.Bad) -> tuple[Verb, str]:
    if bad.is_passing:
        return Verb.RESEND, f"{_PAUSE}-{bad.why}"
    return Verb.ERR, bad.why


# ---- started by a queue


class Pipe:
    """The outlet of a job that a queue has started, for a batch or a message."""

    def __init__(self, fd: int, batch: Batch, driver: Driver) -> None:
        self._fd = fd
        self.batch = batch
        self._driver = driver
        self._turn = threading.Lock()
        self.progress = Progress(self.tell, self._leave)
        self._tables: Tables | None = None

    @property
    def schemas(self) -> Path:
        return kept_schemas.of_queue(self.batch.queue)

    @property
    def job(self) -> Job:
        """The job in the script, which is run when it is asked for."""
        return self._driver.job(self.tell)

    def say(self, verb: Verb, text: str) -> None:
        self._write(f"{verb} {_one_line(text)}")

    def say_of(self, msg_id: str, verb: Verb, text: str) -> None:
        start = "" if self.batch.is_one else f"msg {msg_id} "
        self._write(f"{start}{verb} {_one_line(text)}")

    def tell(self, text: str) -> None:
        self.say(Verb.RUN, text)

    def end(self, verb: Verb, text: str) -> None:
        """Say how all messages end that have not, and nothing after it: what is told
        later would take the place of this text."""
        self.progress.stop()
        self.say(verb, text)

    def tables(self) -> Tables:
        if self._tables is None:
            self.progress.watch(Starting())
            self._tables = self._driver.tables(self.tell, self.batch.readable)
            self.progress.watch(self._tables.watched)
        return self._tables

    def place(self, where: str) -> str:
        return where

    def table(self, name: str) -> str:
        queue = self.batch.queue
        return table_rights.place(queue, name, table_rights.WRITES)

    def table_to_read(self, name: str) -> str:
        queue = self.batch.queue
        return table_rights.place(queue, name, table_rights.READS)

    def failed(self, q: Work) -> None:
        _keep_checks(q)
        # What it has read helps the person who looks why; Java may be gone.
        with contextlib.suppress(Exception):
            self.say(Verb.RESULT, q.figures(None))

    def close(self) -> None:
        """Give back what the messages have used."""
        if self._tables is not None:
            self._tables.close()

    def failure(self, error: Exception) -> tuple[Verb, str]:
        """Return how all messages end that have not."""
        broken = self.progress.given_up or self._driver.failure(error)
        if broken is not None:
            _trace()
            return Verb.RESEND, f"{_PAUSE}-{broken}"
        return verdict(error)

    def _leave(self, why: str) -> None:
        """End this process, whose main thread does not come back from what it waits for;
        without a reason it was cancelled, which the queue knows."""
        if why:
            self.say(Verb.RESEND, f"{_PAUSE}-{why}")
        os._exit(0 if why else 1)

    def _write(self, line: str) -> None:
        data = line.encode("utf-8", "replace") + b"\n"
        with self._turn:
            while data:
                data = data[os.write(self._fd, data) :]


def main(script: Path) -> int:
    """Run a script on the messages that a queue gives; return the exit status."""
    batch = given.from_queue(os.environ)
    driver = Driver(lambda tell: load(script, tell))
    pipe = Pipe(int(os.environ.get("RQ_WRITE", "3")), batch, driver)

    def cancel(_number: int, _frame: FrameType | None) -> None:
        pipe.progress.cancelled.set()

    signal.signal(signal.SIGTERM, cancel)
    try:
        verb = attempt(pipe)
    finally:
        driver.close()
    return 0 if verb in (Verb.DONE, Verb.RESEND) else 1


def attempt(pipe: Pipe) -> Verb | None:
    """Do what the messages of a pipe want; return what was said of them in the end, or
    None without a word: the queue knows why it has sent TERM."""
    pipe.progress.start()
    try:
        text = work(pipe.batch, pipe)
    except Exception as error:  # noqa: BLE001 - main is one of the four places
        if pipe.progress.cancelled.is_set():
            return None
        verb, why = pipe.failure(error)
        pipe.end(verb, why)
        return verb
    except SystemExit as leaving:  # the job has said why it gives up
        pipe.end(Verb.ERR, of_exit(leaving.code))
        return Verb.ERR
    else:
        if text is not None or not pipe.batch.is_one:  # a worker says it of each batch
            pipe.end(Verb.DONE, text or "")
        return Verb.DONE
    finally:
        pipe.progress.stop()
        pipe.close()


def of_exit(code: object) -> str:
    """Return what `sys.exit(CODE)` says. A job that leaves has sent nothing, so it has
    not succeeded, whatever its code."""
    if isinstance(code, str) and code.strip():
        return code
    return f"the job has left by sys.exit({'' if code is None else code})"


def work(batch: Batch, pipe: Pipe) -> str | None:
    """Do what a script says, and send what it sends; return what to say with done, or
    None when all messages have ended before."""
    root = config.find_root(None)
    try:
        writes.carry_out(batch.queue)
    except (OSError, RQError) as error:  # of a day, which is no matter of these
        sys.stderr.write(f"days that were decided before are not made yet: {error}\n")
    sender = sending.Sender(root, batch.queue)
    before = sender.sent_before(batch)
    for msg_id, result in before.items():
        pipe.say_of(msg_id, Verb.DONE, _summary(result))
    left = [message for message in batch.messages if message.msg_id not in before]
    if not left:
        return None
    q = call(pipe.job, batch, pipe, left)
    with contextlib.closing(q.writes):
        return _end(sender, q, pipe)


def _end(sender: sending.Sender, q: Work, pipe: Pipe) -> str | None:
    """Let what a job has made be there, once; return as above."""
    if pipe.progress.cancelled.is_set():
        raise Refused("cancelled")
    for msg_id, (verb, text) in q.endings.items():
        pipe.say_of(msg_id, verb, text)
    if not q.remaining:  # nothing to note a result beside, and nothing to tell
        return None
    origin = sending.origin(q.queue, q.batch_id, q.remaining)
    wrote = q.writes.key if q.writes.is_any else ""
    prepared = sender.prepare(q.letters, q.remaining, origin, wrote)
    ids = [message.msg_id for message in q.remaining]
    q.writes.decide(origin, ids, day_files.of_script(pipe.job.digest, ids))
    q.writes.publish()
    sender.commit(prepared)
    q.keep_schemas()
    _keep_checks(q)
    pipe.say(Verb.RESULT, q.figures([entry.name for entry in prepared]))
    return _summary(Result(prepared, q.writes.tables), q.checked)


def _keep_checks(q: Work) -> None:
    """Keep what was expected of the data of a batch, for the pages; that this cannot be
    done is no matter of the batch."""
    if not q.checks:
        return
    wrote = [table.plan.name for table in q.writes.tables if table.plan is not None]
    batch = checks.Batch(batch_id=q.batch_id, time=time.time(), ids=q.ids, wrote=wrote)
    with contextlib.suppress(OSError, RQError):
        Checks(config.find_root(None), q.queue).add(batch, q.checks)


def _summary(result: Result, checked: Sequence[str] = ()) -> str:
    """Return what a job has sent and written, and what was expected of its data and
    holds."""
    sent = ", ".join(entry.name for entry in result.sent)
    parts = [f"sent {sent}"] if sent else []
    parts += [f"wrote {table.text}" for table in result.wrote]
    parts += [f"checked: {text}" for text in checked]
    return "; ".join(parts)


def verdict(error: Exception) -> tuple[Verb, str]:
    """Return how all messages end that have not, when the job itself has failed."""
    if isinstance(error, RQError):
        if error.kind in AGAIN:
            return Verb.RESEND, f"{_PAUSE}-{error}"
        return Verb.ERR, str(error)
    if away := failures.unreachable(error):
        return Verb.RESEND, f"{_PAUSE}-{away}"
    _trace()
    return Verb.ERR, last_line(error)


def _trace() -> None:
    """Write where the error came from into the log of the message."""
    traceback.print_exc()
    sys.stderr.flush()


def last_line(error: Exception) -> str:
    """Return what went wrong in one line; of a Python worker, its own last line."""
    if text := failures.sentence(error) or duck.sentence(error):
        return text
    lines = [line for line in str(error).splitlines() if line.strip()]
    traced = [n for n, line in enumerate(lines) if line.startswith("Traceback ")]
    if traced:
        after = lines[traced[-1] + 1 :]
        own = (line for line in after if not line.startswith((" ", "\t")))
        return next(own, lines[0])
    if text := failures.cause(error):
        return text
    first, name = failures.first_line(error), type(error).__name__
    return f"{name}: {first}" if lines else name


def _one_line(text: str) -> str:
    return " ".join(text.split())
