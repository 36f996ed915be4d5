"""Starts the script of a queue for a message, or hands one to a long-lived worker."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

from rq.config.settings import EXIT
from rq.layout import JOB, folder
from rq.message import Message
from rq.queues.attempts.attempt import Attempt, Work
from rq.queues.owner.owner import Owner
from rq.queues.runner.reports import Reports
from rq.scripts import environment, worker_protocol
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.program import Program
from rq.scripts.script import Script
from rq.scripts.worker import Worker
from rq.spool import batch_dirs
from rq.states import State


class Launcher:
    """Starts attempts; OSError says why an attempt cannot start."""

    def __init__(self, owner: Owner, null: int, reports: Reports) -> None:
        self._owner = owner
        self._file = owner.script
        self._null = null
        self._reports = reports

    def spawn(self, attempt: Attempt, on_exit: Callable[[Attempt], None]) -> None:
        """Start a script for a message."""
        owner, msg_id = self._owner, attempt.msg_id
        path = f"{folder(State.RUN, msg_id)}/{JOB}"
        directory = self._opened(msg_id)
        attempt.stamp = owner.spool.run_folders.stamp(msg_id)
        log = self.log(path, directory)
        make = functools.partial(
            Script,
            loop=owner.loop,
            on_line=functools.partial(self._reports.take, attempt),
            on_exit=functools.partial(on_exit, attempt),
        )
        values = self._values(attempt.message, f"{owner.spool.queue.path}/{path}")
        script = self.program().start(attempt.slot, values, log, make)
        last_printed = log.last_printed if owner.config.success == EXIT else None
        attempt.start(Work(script=script, log=log, last_printed=last_printed))

    def program(self) -> Program:
        """Return the script of the queue as it is started now."""
        owner = self._owner
        return Program(
            path=self._file.path,
            argv_prefix=owner.settings.argv_prefix,
            env=owner.settings.environment,
            nice=owner.config.nice,
            null=self._null,
            family=owner.family,
        )

    def log(self, path: str, directory: int) -> StdioLog:
        """Begin the log of a script in an open directory, which it closes."""
        return StdioLog(
            self._owner.spool.dir_fd,
            path,
            directory,
            self._file.path,
            batch_dirs.set_aside,
        )

    def hand_over(self, attempt: Attempt, worker: Worker[Attempt]) -> None:
        """Give a message to a long-lived worker."""
        message, msg_id = attempt.message, attempt.msg_id
        if worker.script.termination is not None:
            raise ChildProcessError(errno.ECHILD, "its worker has ended")
        directory = None
        if self._owner.config.worker_dir or message.attachments:
            directory = self._directory(msg_id)
            attempt.stamp = self._owner.spool.run_folders.stamp(msg_id)
        else:
            self._owner.spool.rest(msg_id)
        log = PassedLog(
            functools.partial(self._opened, msg_id),
            worker.pid,
            self._file.path,
            batch_dirs.set_aside,
        )
        line = worker_protocol.line(self._values(message, directory))
        worker.take(attempt, log, line)
        attempt.hand_over(Work(script=worker.script, log=log))

    def _directory(self, msg_id: str) -> str:
        """Make the folder and the worker's directory of a message that runs."""
        self._owner.spool.settle(msg_id)
        return self._owner.spool.run_folders.work_dir(msg_id)

    def _opened(self, msg_id: str) -> int:
        """As `_directory`; return a descriptor of it."""
        self._owner.spool.settle(msg_id)
        return self._owner.spool.run_folders.open_work_dir(msg_id)

    def _values(self, message: Message, directory: str | None) -> dict[str, str]:
        return environment.of_message(
            self._owner.main, self._owner.name, message, directory
        )
