"""Starts the script of a queue for a message, or hands one to a long-lived worker."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Mapping

from rq.config.settings import EXIT
from rq.layout import JOB, folder
from rq.message import Message
from rq.queues.attempts.attempt import Attempt, Work
from rq.queues.attempts.worker import Worker
from rq.queues.owner import Owner
from rq.queues.runner.reports import Reports
from rq.queues.runner.script_file import ScriptFile
from rq.scripts import environment, worker_protocol
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.script import Plan, Script, find_program
from rq.states import State


class Launcher:
    """Starts attempts; OSError says why one cannot be started."""

    def __init__(
        self, owner: Owner, file: ScriptFile, null: int, reports: Reports
    ) -> None:
        self._owner = owner
        self._file = file
        self._null = null
        self._reports = reports

    def spawn(self, attempt: Attempt, on_exit: Callable[[Attempt], None]) -> None:
        """Start a script for a message."""
        owner, slot, msg_id = self._owner, attempt.slot, attempt.msg_id
        path = f"{folder(State.RUN, msg_id)}/{JOB}"
        directory = self._opened(msg_id)
        attempt.stamp = owner.spool.stamp(msg_id)
        log = StdioLog(owner.spool.dir_fd, path, directory, self._file.path)
        try:
            plan = self.plan(
                slot.lease,
                self._values(attempt.message, f"{owner.spool.queue.path}/{path}"),
                directory=log.directory,
                output=log.fd,
                lease_fd=slot.fd,
            )
            script = Script(
                plan,
                owner.loop,
                functools.partial(self._reports.take, attempt),
                functools.partial(on_exit, attempt),
            )
            log.started(script.pid)
        finally:
            log.close()
        os.close(slot.fd)
        last_printed = log.last_printed if owner.config.success == EXIT else None
        attempt.start(Work(script=script, log=log, last_printed=last_printed))

    def plan(
        self,
        lease: str,
        values: Mapping[str, str],
        *,
        directory: int | str,
        output: int,
        lease_fd: int,
    ) -> Plan:
        """Return how the script is started with `values` in its environment."""
        owner, script = self._owner, self._file.path
        env = {**environment.for_script(owner.base_env, script, lease), **values}
        return Plan(
            argv=find_program([*owner.argv_prefix, script], env.get("PATH", "")),
            env=env,
            directory=directory,
            output=output,
            lease=lease_fd,
            nice=owner.config.nice,
            null=self._null,
            family=owner.family,
        )

    def hand_over(self, attempt: Attempt, worker: Worker) -> None:
        """Give a message to a long-lived worker."""
        message, msg_id = attempt.message, attempt.msg_id
        if worker.script.termination is not None:
            raise ChildProcessError(errno.ECHILD, "its worker has ended")
        directory = None
        if self._owner.config.worker_dir or message.attachments:
            directory = self._directory(msg_id)
            attempt.stamp = self._owner.spool.stamp(msg_id)
        else:
            self._owner.spool.rest(msg_id)
        log = PassedLog(
            functools.partial(self._opened, msg_id), worker.pid, self._file.path
        )
        line = worker_protocol.line(self._values(message, directory))
        worker.take(attempt, log, line)
        attempt.hand_over(Work(script=worker.script, log=log))

    def _directory(self, msg_id: str) -> str:
        """Make the folder and the worker's directory of a message that runs."""
        self._owner.spool.settle(msg_id)
        return self._owner.spool.work_dir(msg_id)

    def _opened(self, msg_id: str) -> int:
        """As `_directory`; return a descriptor of it."""
        self._owner.spool.settle(msg_id)
        return self._owner.spool.open_work_dir(msg_id)

    def _values(self, message: Message, directory: str | None) -> dict[str, str]:
        return environment.of_message(
            self._owner.main, self._owner.name, message, directory
        )
