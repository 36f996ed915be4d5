"""The long-lived workers of a queue: started as messages want them, renewed, ended.

A worker that dies without a message costs no attempt; after one that dies before its
first message the next start is put off.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from rq import back_off
from rq.logs import fields
from rq.queues.attempts.attempt import PoolWorker, Task
from rq.queues.owner.owner import Owner
from rq.queues.runner.parts import Parts
from rq.scripts import worker_protocol
from rq.scripts.script import Plan
from rq.scripts.script_file import MISSING, SCRIPT_SECONDS
from rq.scripts.slots import Slot
from rq.scripts.worker import Events, Worker
from rq.scripts.worker_protocol import Limits, WorkerPhase

OUTPUT_LINES = 100  # that a worker prints without a message, in the log
OUTPUT_WIDTH = 500

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Who is told what long-lived workers do with their messages or batches."""

    said: Callable[[Task, bytes], None]
    finished: Callable[[Task], None]
    unread: Callable[[Task], None]  # it ended before it had read its line


class Pool:
    """All long-lived workers of one queue."""

    def __init__(
        self,
        owner: Owner,
        parts: Parts,
        tasks: Tasks,
    ) -> None:
        self._owner = owner
        self._parts = parts
        self._tasks = tasks
        self._all = owner.attempts.workers
        self._free: list[PoolWorker] = []
        self._failures = 0
        self._hold_until = 0.0
        self._script: tuple[object, ...] = ()  # the file that they run
        self._printed: dict[PoolWorker, int] = {}
        self._events = Events(
            ready=self._ready,
            said=tasks.said,
            printed=self._print,
            exited=self._exited,
        )

    @property
    def free(self) -> int:
        """How many can be given a message at once."""
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Whether a worker has a message, or is about to be given one."""
        return any(worker.phase is WorkerPhase.TAKEN for worker in self._all.values())

    @property
    def empty(self) -> bool:
        return not self._all

    # ---- starting

    def want(self, now: float) -> float | None:
        """Start a worker if a message is due; return when to look again."""
        first = self._owner.backlog.next_look(now)
        if first is None:
            self._parts.file.is_back()  # no message waits for it: no error to show
        if first is None or first > now:
            return first
        return self.grow(now)

    def grow(self, now: float) -> float | None:
        """Start a worker if the config allows it; return when to ask again."""
        try:
            return self._grow(now)
        except OSError as error:
            text = self._parts.file.why_not(error)
            log.warning("a worker could not be started: %s", fields(reason=text))
            if error.errno in MISSING:
                self._parts.file.fail(text, now)
            return now + SCRIPT_SECONDS

    def _grow(self, now: float) -> float | None:
        """Start another worker if the config allows it; return when to ask again. OSError,
        as execve gives it, when the script cannot be started."""
        workers = self._all.values()
        live = [worker for worker in workers if worker.phase is not WorkerPhase.RETIRED]
        full = len(live) >= self._owner.config.num_workers
        if full or any(worker.phase is WorkerPhase.STARTING for worker in live):
            return None
        if now < self._hold_until:
            return self._hold_until
        try:
            self._start()
        except OSError:
            self._hold(now)
            raise
        return None

    def _start(self) -> None:
        slot = self._parts.slots.take()
        plan = functools.partial(self._plan, slot)
        try:
            worker = Worker(plan, slot, self._owner.loop, self._events)
        except BaseException:
            self._parts.slots.free(slot.number)
            raise
        finally:
            os.close(slot.fd)
        self._all[slot.number] = worker
        script = self._parts.file.path
        log.info("a worker starts: %s", fields(pid=worker.pid, script=script))

    def _plan(self, slot: Slot, output: int) -> Plan:
        program = self._parts.launcher.program()
        limits = self._owner.settings.limits
        return program.plan(slot, {}, directory="/", output=output, limits=limits)

    def _hold(self, now: float) -> None:
        self._failures += 1
        self._hold_until = now + back_off.delay(self._failures, 0.5, 30.0)

    def hold_no_longer(self) -> None:
        """Try again at once: something may have changed."""
        self._hold_until = 0.0

    # ---- giving and taking

    def take(self) -> PoolWorker:
        """Reserve a free worker."""
        worker = self._free.pop()
        worker.reserve()
        return worker

    def _ready(self, worker: PoolWorker) -> None:
        if worker.attempt is not None:
            self._tasks.finished(worker.attempt)
            return
        self._free.append(worker)
        self._parts.file.is_back()
        self._owner.wake()

    def release(self, worker: PoolWorker) -> None:
        """Take back a worker whose message has gone on, or was not handed to it."""
        if worker.script.termination is not None:
            return  # it is forgotten when nothing is left of it
        if worker.attempt is not None:
            self._failures = 0
        grace = self._owner.settings.grace
        if self._owner.admission.stopping or worker.worn(self._limits):
            worker.retire(grace)
        worker.release(grace)
        if worker.phase is WorkerPhase.FREE:
            self._free.append(worker)

    # ---- renewing

    @property
    def _limits(self) -> Limits:
        config = self._owner.config
        return Limits(config.worker_messages, config.worker_seconds)

    def has_free(self) -> bool:
        """Whether a worker is free that runs the script as it is now, as its user is now;
        workers that run another are renewed."""
        script = (*self._parts.file.identity, self._owner.identity.now)
        if script != self._script:
            self._script = script
            self.hold_no_longer()
            self.renew()
        return bool(self._free)

    def renew(self) -> None:
        """End all workers, each after its message."""
        for worker in list(self._all.values()):
            if worker.phase is not WorkerPhase.RETIRED:
                worker.retire(self._owner.settings.grace)
        self._free.clear()

    def retire_worn(self) -> None:
        """End free workers that have reached a limit of their config."""
        for worker in [free for free in self._free if free.worn(self._limits)]:
            worker.retire(self._owner.settings.grace)
            self._free.remove(worker)

    # ---- ending

    def signal_all(self, sig: int) -> None:
        """Signal all workers that have not ended."""
        for worker in list(self._all.values()):
            worker.script.signal(sig)

    def _exited(self, worker: PoolWorker) -> None:
        if worker in self._free:
            self._free.remove(worker)
        if worker.attempt is not None and not worker.refused:
            self._tasks.finished(worker.attempt)
            return
        if worker.attempt is not None:
            self._tasks.unread(worker.attempt)
        if not worker.hung_up:
            self._exited_unasked(worker, self._owner.spool.clock())
        forget = functools.partial(self.forget, worker)
        self._parts.orphans.clear(worker.script, worker.slot, False, forget)

    def _exited_unasked(self, worker: PoolWorker, now: float) -> None:
        if worker.messages == 0 or (worker.refused and worker.messages == 1):
            self._hold(now)
        how = worker.script.termination
        assert how is not None
        text = worker_protocol.died(how.exit, how.signal, worker.greeted)
        log.warning("%s: %s", text, fields(pid=worker.pid))
        if not worker.greeted and not self._free:
            self._parts.file.fail(f"{self._owner.config.script}: {text}", now)

    def forget(self, worker: PoolWorker) -> None:
        """Forget a worker that has ended, once nothing is left of it."""
        del self._all[worker.slot.number]
        self._printed.pop(worker, None)
        self._parts.slots.free(worker.slot.number)
        self._owner.wake()

    # ---- what they print without a message

    def _print(self, worker: PoolWorker, data: bytes) -> None:
        for line in data.decode("utf-8", "replace").split("\n"):
            count = self._printed[worker] = self._printed.get(worker, 0) + 1
            if line and count <= OUTPUT_LINES:
                log.info(
                    "a worker without a message prints: %s",
                    fields(pid=worker.pid, text=line[:OUTPUT_WIDTH]),
                )
