"""Starts the script of a queue for a message, or hands one to a long-lived worker."""

from __future__ import annotations

import errno
import functools
import logging
import os
from collections.abc import Callable, Mapping

from rq.access.attempt_tokens import AttemptTokens
from rq.config.checks import EXIT
from rq.layout import JOB, folder
from rq.logs import fields
from rq.message import limits
from rq.message.limits import Over
from rq.message.message import Message
from rq.proc import users
from rq.queues.asking import after_file
from rq.queues.attempts.attempt import Attempt, Batch, PoolWorker, Work
from rq.queues.owner.owner import Owner
from rq.queues.runner.reports import Reports
from rq.scripts import environment, worker_protocol
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.program import Program
from rq.scripts.run_as import Ids
from rq.scripts.script import Script
from rq.scripts.time_limits import Timed, TimeLimits
from rq.scripts.worker import OpenLog
from rq.spool import batch_dirs
from rq.words.states import State

log = logging.getLogger(__name__)


class Launcher:
    """Starts attempts; OSError says why an attempt cannot start."""

    def __init__(
        self,
        owner: Owner,
        reports: Reports,
        time_limits: TimeLimits,
        tokens: AttemptTokens,
    ) -> None:
        self._owner = owner
        self._tokens = tokens
        self._file = owner.script
        self._reports = reports
        self._time_limits = time_limits
        # Of the only predecessor of a message, from its making ready to its start.
        self.results: dict[str, str] = {}

    def spawn(self, attempt: Attempt, on_exit: Callable[[Attempt], None]) -> None:
        """Start a script for a message."""
        self.check()
        owner, msg_id = self._owner, attempt.msg_id
        path = f"{folder(State.RUN, msg_id)}/{JOB}"
        # All that can fail without the log comes before it, which holds descriptors.
        values = self._values(attempt.message, f"{owner.spool.queue.path}/{path}")
        values.update(self.token(msg_id))
        program = self.program()
        directory = self._opened(msg_id)
        attempt.stamp = attempt.stamp or owner.spool.run_folders.stamp(msg_id)
        output = self.log(path, directory, attempt.message.attempt)
        make = functools.partial(
            Script,
            loop=owner.loop,
            on_line=functools.partial(self._reports.take, attempt),
            on_exit=functools.partial(on_exit, attempt),
        )
        attempt.limits = limits.of(owner.settings.limits, attempt.message.limits)
        script = program.start(attempt.slot, values, output, make, attempt.limits)
        last_printed = output.last_printed if owner.config.success == EXIT else None
        attempt.start(Work(script=script, log=output, last_printed=last_printed))
        self._limit(attempt)

    @property
    def _ids(self) -> Ids | None:
        return self._owner.identity.now.ids

    def token(self, of: str) -> dict[str, str]:
        """Return what an attempt on a message, or on a batch, has in its environment to
        send messages with, if it runs as another user."""
        user = self._owner.identity.now.user
        return (
            {} if user is None else self._tokens.begin(of, users.kernel_name(user.uid))
        )

    def lends(self, message: Message) -> bool:
        """Whether something must be made ready before the start: the attachments of a
        message for another user, or what its script is told of those that it waited for."""
        if message.after:
            return True
        return self._ids is not None and bool(message.attachments)

    async def lend(self, message: Message) -> None:
        """Allow the group of its script to read the attachments of a claimed message;
        OSError when they cannot be made ready, or are for another one by now."""
        owner, ids = self._owner, self._ids
        if message.after:
            await self._tell_of_others(message, ids)
        if ids is None or not message.attachments:
            return
        owner.spool.settle(message.msg_id)
        await owner.loop.run_in_executor(
            owner.pools.files,
            owner.spool.run_folders.lend,
            message.msg_id,
            list(message.attachments),
            ids[1],
        )
        self.check_still(ids)

    async def _tell_of_others(self, message: Message, ids: Ids | None) -> None:
        """Write what the script of a message is told of those that it waited for."""
        owner, msg_id = self._owner, message.msg_id
        owner.spool.settle(msg_id)
        run, pool = owner.loop.run_in_executor, owner.pools.files
        may = after_file.readers(owner.root, owner.main, message.by)
        file = await run(pool, after_file.build, owner.root, message, may)
        write = owner.spool.run_folders.write_after
        await run(pool, write, msg_id, after_file.FILE, file.data, ids)
        if file.result is not None:
            self.results[msg_id] = file.result

    def check(self) -> None:
        """OSError when no script may start as the config, which may have changed since
        the claim, says now."""
        if why := self._owner.identity.why_not():
            raise PermissionError(errno.EPERM, why)

    def check_still(self, ids: Ids | None) -> None:
        """As `check`, of a start that was made ready for user and group `ids`."""
        self.check()
        if ids != self._ids:
            raise PermissionError(errno.EPERM, "its user was changed meanwhile")

    def program(self) -> Program:
        """Return the script of the queue as it is started now."""
        owner = self._owner
        self.check()
        return Program(
            path=self._file.path,
            argv_prefix=owner.settings.argv_prefix,
            env=owner.settings.environment,
            nice=owner.config.nice,
            family=owner.family,
            run_as=owner.identity.now,
        )

    def log(self, path: str, directory: int, attempt: int = 1) -> StdioLog:
        """Begin the log of a script in an open directory, which it closes; `attempt` is
        that of the message in whose folder it is."""
        return StdioLog(
            self._owner.spool.dir_fd,
            path,
            directory,
            self._file.path,
            functools.partial(batch_dirs.set_aside, attempt=attempt),
            self._ids,
        )

    def hand_over_batch(
        self, batch: Batch, values: Mapping[str, str], output: StdioLog
    ) -> None:
        """Give a batch to its long-lived worker; its output goes to the log of the
        batch."""
        worker = batch.worker
        if worker is None or worker.script.termination is not None:
            raise ChildProcessError(errno.ECHILD, "its worker has ended")
        output.started(worker.pid)
        batch.output = OpenLog(os.dup(output.fd))
        worker.take(batch, batch.output, worker_protocol.line(values))
        batch.start(worker.script, output)

    def hand_over(self, attempt: Attempt, worker: PoolWorker) -> None:
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
        output = PassedLog(
            functools.partial(self._opened, msg_id),
            worker.pid,
            self._file.path,
            functools.partial(batch_dirs.set_aside, attempt=message.attempt),
            self._ids,
        )
        values = {**self._values(message, directory), **self.token(msg_id)}
        line = worker_protocol.line(values)
        worker.take(attempt, output, line)
        attempt.hand_over(Work(script=worker.script, log=output))
        attempt.limits = limits.of(self._owner.settings.limits, message.limits)
        self._limit(attempt)

    def _limit(self, attempt: Attempt) -> None:
        """Look after the time of a script at work on a message."""
        output = attempt.work.log
        output.keep(attempt.limits.log_bytes)
        if attempt.limits.of_time:
            attempt.timed = self._time_limits.begin(
                Timed(
                    limits=attempt.limits,
                    kill=functools.partial(self._over, attempt),
                    printed=output.size,
                    thin=None if attempt.limits.log_bytes is None else output.thin,
                )
            )

    def _over(self, attempt: Attempt, over: Over) -> None:
        attempt.said.over = over
        log.warning("%s: %s", over.text, fields(msg_id=attempt.msg_id))
        self.end(attempt)

    def end(self, attempt: Attempt) -> None:
        """End the script at work on a message, and its worker with it."""
        grace = attempt.limits.grace
        if grace is None:
            grace = self._owner.settings.grace
        if attempt.claim.worker is not None:
            attempt.claim.worker.retire(grace)
        attempt.script.terminate(grace, msg_id=attempt.msg_id)

    def _directory(self, msg_id: str) -> str:
        """Make the folder and the worker's directory of a message that runs."""
        self._owner.spool.settle(msg_id)
        return self._owner.spool.run_folders.work_dir(msg_id, self._ids)

    def _opened(self, msg_id: str) -> int:
        """As `_directory`; return a descriptor of it."""
        self._owner.spool.settle(msg_id)
        return self._owner.spool.run_folders.open_work_dir(msg_id, self._ids)

    def _values(self, message: Message, directory: str | None) -> dict[str, str]:
        values = environment.of_message(
            self._owner.main, self._owner.name, message, directory
        )
        if message.after:
            place = folder(State.RUN, message.msg_id)
            base = self._owner.spool.queue.path
            values["RQ_AFTER"] = f"{base}/{place}/{after_file.FILE}"
            result = self.results.pop(message.msg_id, None)
            if result is not None and message.parent_result is None:
                values["RQ_PARENT_RESULT"] = result
        return values
