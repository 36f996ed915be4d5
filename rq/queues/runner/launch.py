"""Starts the script of a queue: for a message, or hands one to a worker that stays."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Mapping

from rq.config.settings import EXIT
from rq.layout import JOB, folder
from rq.message import Message
from rq.pipe import Report
from rq.queues.attempts import worker_protocol
from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.claim import Claim
from rq.queues.attempts.worker import Worker
from rq.queues.owner import Owner
from rq.queues.runner.script_file import ScriptFile
from rq.scripts import environment
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.script import Plan, Script, find_program
from rq.states import State

Hear = Callable[[Attempt, Report], None]


class Launcher:
    """Makes attempts of claims; OSError says why one cannot be."""

    def __init__(self, owner: Owner, file: ScriptFile, null: int, hear: Hear) -> None:
        self._owner = owner
        self._file = file
        self._null = null
        self._hear = hear

    def spawn(self, claim: Claim, on_end: Callable[[Attempt], None]) -> Attempt:
        """Start a script for a message."""
        owner, message, slot = self._owner, claim.message, claim.slot
        spool, msg_id = owner.spool, message.msg_id
        path = f"{folder(State.RUN, msg_id)}/{JOB}"
        directory = self._opened(msg_id)
        claim.stamp = spool.stamp(msg_id)
        log = StdioLog(spool.dir_fd, path, directory, self._file.path)
        attempt = Attempt(message, slot, log, self._hear)
        if owner.config.success == EXIT:
            attempt.last_printed = log.last_printed
        try:
            plan = self.plan(
                slot.lease,
                self._values(message, f"{spool.queue.path}/{path}"),
                directory=log.directory,
                output=log.fd,
                lease_fd=slot.fd,
            )
            end = functools.partial(on_end, attempt)
            attempt.script = Script(plan, owner.loop, attempt.hear, end)
            log.started(attempt.pid)
        finally:
            log.close()
        os.close(slot.fd)
        return attempt

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

    def hand(self, claim: Claim, worker: Worker) -> Attempt:
        """Give a message to a long-lived worker."""
        message, msg_id = claim.message, claim.msg_id
        if worker.script.ending is not None:
            raise ChildProcessError(errno.ECHILD, "its worker has ended")
        directory = None
        if self._owner.config.worker_dir or message.attachments:
            directory = self._directory(msg_id)
            claim.stamp = self._owner.spool.stamp(msg_id)
        else:
            self._owner.spool.rest(msg_id)
        log = PassedLog(
            functools.partial(self._opened, msg_id), worker.pid, self._file.path
        )
        attempt = Attempt(message, worker.slot, log, self._hear)
        line = worker_protocol.line(self._values(message, directory))
        worker.hand(attempt, log, line)
        return attempt

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
