"""Long-lived workers of an agent: started as messages want them, renewed, ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
from collections.abc import Mapping

from rq import back_off
from rq.logs import fields
from rq.scripts import worker_protocol
from rq.scripts.log import PassedLog
from rq.scripts.script import Plan
from rq.scripts.worker import Events, Worker
from rq.scripts.worker_protocol import Limits, WorkerPhase
from rq.work.attempt import Attempt
from rq.work.once import Tools, no_other

log = logging.getLogger(__name__)


class Pool:
    """The workers of one agent, no more than messages at work."""

    def __init__(self, tools: Tools, limits: Limits) -> None:
        self._tools = tools
        self._limits = limits
        self._all: set[Worker[Attempt]] = set()
        self._free: list[Worker[Attempt]] = []
        self._changed = asyncio.Event()
        self._failures = 0
        self._path = ""
        self._clearing: set[asyncio.Task[None]] = set()
        self._events: Events[Attempt] = Events(
            ready=self._ready, said=Attempt.hear, printed=_print, exited=self._exited
        )

    @property
    def empty(self) -> bool:
        """Whether no worker is left."""
        return not self._all and not self._clearing

    async def run(self, attempt: Attempt, values: Mapping[str, str]) -> None:
        """Let a worker work on a message; OSError when none can be started."""
        worker = await self._take()
        if attempt.why is not None:
            self._release(worker)
            return
        passed = PassedLog(
            attempt.open_job, worker.pid, self._tools.program().path, no_other
        )
        retire = functools.partial(worker.retire, self._tools.grace)
        attempt.begin(worker.script, passed, retire)
        worker.take(attempt, passed, worker_protocol.line(values))
        self._tools.limit(attempt)
        self._tools.mind(attempt, passed.size)
        await attempt.exited.wait()
        self._tools.time_limits.end(attempt.timed)
        attempt.refused = worker.refused
        attempt.close_log()
        passed.close()
        self._release(worker)

    # ---- giving and taking

    async def _take(self) -> Worker[Attempt]:
        while True:
            self._renew_changed()
            if self._free:
                worker = self._free.pop()
                worker.reserve()
                return worker
            phases = [worker.phase for worker in self._all]
            if WorkerPhase.STARTING not in phases:
                await self._start()
            self._changed.clear()
            await self._changed.wait()
            self._check_life()

    def _check_life(self) -> None:
        """OSError when workers end before they are ready."""
        if self._failures:
            text = "a worker ended before it said ready"
            raise ChildProcessError(errno.ECHILD, text)

    async def _start(self) -> None:
        await asyncio.sleep(back_off.delay(self._failures, 0.5, 30.0))
        self._failures = 0
        slot = self._tools.slots.take()
        try:
            program = self._tools.program()
            self._path = program.path

            def plan(output: int) -> Plan:
                own = self._tools.own_limits()
                return program.plan(slot, {}, directory="/", output=output, limits=own)

            worker = Worker(plan, slot, self._tools.loop, self._events)
        except BaseException:
            self._tools.slots.free(slot.number)
            raise
        finally:
            os.close(slot.fd)
        self._all.add(worker)

    def _renew_changed(self) -> None:
        """Let workers end whose script is no longer the one that is started."""
        if self._all and self._tools.program().path != self._path:
            self.retire()

    def _ready(self, worker: Worker[Attempt]) -> None:
        if worker.attempt is not None:
            worker.attempt.exited.set()
        else:
            self._free.append(worker)
            self._changed.set()

    def _release(self, worker: Worker[Attempt]) -> None:
        """Take back a worker that is done with its message."""
        if worker.script.termination is not None:
            return
        if worker.worn(self._limits):
            worker.retire(self._tools.grace)
        worker.release(self._tools.grace)
        if worker.phase is WorkerPhase.FREE:
            self._free.append(worker)
            self._changed.set()

    # ---- ending

    def retire(self) -> None:
        """Let all workers end, each after its message."""
        for worker in list(self._all):
            if worker.phase is not WorkerPhase.RETIRED:
                worker.retire(self._tools.grace)
        self._free.clear()

    def _exited(self, worker: Worker[Attempt]) -> None:
        self._all.discard(worker)
        with contextlib.suppress(ValueError):
            self._free.remove(worker)
        if worker.attempt is not None:
            worker.attempt.exited.set()
        elif not worker.greeted:
            self._failures += 1
            how = worker.script.termination
            assert how is not None
            text = worker_protocol.died(how.exit, how.signal, worker.greeted)
            log.warning("%s: %s", text, fields(pid=worker.pid))
        task = self._tools.loop.create_task(
            self._tools.clear(worker.script, worker.slot, False)
        )
        self._clearing.add(task)
        task.add_done_callback(self._cleared)

    def _cleared(self, task: asyncio.Task[None]) -> None:
        self._clearing.discard(task)
        self._changed.set()


def _print(worker: Worker[Attempt], data: bytes) -> None:
    text = data.decode("utf-8", "replace").strip()[:500]
    if text:
        log.info(
            "a worker without a message prints: %s", fields(pid=worker.pid, text=text)
        )
