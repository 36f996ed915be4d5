"""The long-lived workers of a queue: started as messages want them, renewed, ended.

A worker that dies without a message costs nobody; one that dies before its first message
lets the next start wait.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

from rq import back_off
from rq.logs import fields
from rq.queues.attempts.worker import Worker
from rq.queues.attempts.worker_protocol import Limits, Phase
from rq.queues.owner import Owner
from rq.scripts import environment
from rq.scripts.script import KILL, TERM, Plan, find_program
from rq.scripts.slots import Slots

OUTPUT_LINES = 100  # of what one worker prints without a message, in the log
OUTPUT_WIDTH = 500

log = logging.getLogger(__name__)


class Pool:
    """All long-lived workers of one queue."""

    def __init__(
        self,
        owner: Owner,
        slots: Slots,
        null: int,
        on_ready: Callable[[Worker], None],
        on_exit: Callable[[Worker], None],
    ) -> None:
        self._owner = owner
        self._slots = slots
        self._null = null
        self._on_ready = on_ready
        self._on_exit = on_exit
        self._all = owner.residents
        self._free: list[Worker] = []
        self._failures = 0
        self._hold_until = 0.0
        self._script: tuple[object, ...] = ()  # which one they run
        self._printed: dict[Worker, int] = {}

    @property
    def free(self) -> int:
        """How many can be given a message at once."""
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Whether one has a message, or is about to be given one."""
        return any(worker.phase is Phase.TAKEN for worker in self._all)

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._all))

    # ---- starting

    def grow(self, script: str, now: float) -> float | None:
        """Start one more, if it may be; return when to ask again. OSError as execve
        gives it: it cannot be started."""
        live = [worker for worker in self._all if worker.phase is not Phase.ENDING]
        full = len(live) >= self._owner.config.num_workers
        if full or any(worker.phase is Phase.STARTING for worker in live):
            return None
        if now < self._hold_until:
            return self._hold_until
        try:
            self._start(script)
        except OSError:
            self._hold(now)
            raise
        return None

    def _start(self, script: str) -> None:
        owner = self._owner
        slot = self._slots.take()
        env = environment.for_script(owner.base_env, script, slot.lease)

        def plan(output: int) -> Plan:
            return Plan(
                argv=find_program([*owner.argv_prefix, script], env.get("PATH", "")),
                env=env,
                directory="/",
                output=output,
                lease=slot.fd,
                nice=owner.config.nice,
                null=self._null,
                family=owner.family,
            )

        try:
            worker = Worker(
                plan, slot, owner.loop, self._ready, self._exited, self._print
            )
        except BaseException:
            self._slots.free(slot.number)
            raise
        finally:
            os.close(slot.fd)
        self._all.append(worker)
        log.info("a worker starts: %s", fields(pid=worker.pid, script=script))

    def _hold(self, now: float) -> None:
        self._failures += 1
        self._hold_until = now + back_off.delay(self._failures, 0.5, 30.0)

    def hold_no_longer(self) -> None:
        """Something may have changed: try again at once."""
        self._hold_until = 0.0

    # ---- giving and taking

    def take(self) -> Worker:
        """Reserve one that is free."""
        worker = self._free.pop()
        worker.phase = Phase.TAKEN
        return worker

    def _ready(self, worker: Worker) -> None:
        if worker.attempt is None:
            self._free.append(worker)
        self._on_ready(worker)

    def release(self, worker: Worker) -> None:
        """Take one back whose message has gone on, or was not handed to it."""
        if worker.script.ending is not None:
            return  # it is forgotten when nothing is left of it
        if worker.attempt is not None:
            self._failures = 0
        config = self._owner.config
        limits = Limits(config.worker_messages, config.worker_seconds)
        if self._owner.admission.stopping or worker.worn(limits):
            worker.retire()
        worker.release()
        if worker.phase is Phase.FREE:
            self._free.append(worker)
        else:
            self._see_off(worker)

    # ---- ending

    def know(self, script: tuple[object, ...]) -> None:
        """Renew all if the script is not the one that they run."""
        if script != self._script:
            self._script = script
            self.hold_no_longer()
            self.renew()

    def renew(self) -> None:
        """Let all end that live now, each when its message has."""
        for worker in self._all:
            if worker.phase is not Phase.ENDING:
                self._retire(worker)

    def retire_worn(self) -> None:
        """Let those end that have lived long and have no message."""
        config = self._owner.config
        limits = Limits(config.worker_messages, config.worker_seconds)
        for worker in list(self._free):
            if worker.worn(limits):
                self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        worker.retire()
        if worker in self._free:
            self._free.remove(worker)
        if worker.phase is Phase.ENDING:
            self._see_off(worker)

    def _see_off(self, worker: Worker) -> None:
        """End one that does not end by itself."""
        grace = self._owner.main.grace
        self._owner.loop.call_later(grace, worker.script.signal, TERM)
        self._owner.loop.call_later(2 * grace, worker.script.signal, KILL)

    def _exited(self, worker: Worker) -> None:
        if worker in self._free:
            self._free.remove(worker)
        self._on_exit(worker)

    def note_failure(self, worker: Worker, now: float) -> None:
        """One has ended unasked: if before its first message, the next start waits."""
        if worker.messages == 0 or (worker.refused and worker.messages == 1):
            self._hold(now)

    def forget(self, worker: Worker) -> None:
        """One has ended, and nothing is left of it."""
        self._all.remove(worker)
        self._printed.pop(worker, None)
        self._slots.free(worker.slot.number)

    # ---- what they print without a message

    def _print(self, worker: Worker, data: bytes) -> None:
        for line in data.decode("utf-8", "replace").splitlines():
            count = self._printed[worker] = self._printed.get(worker, 0) + 1
            if line and count <= OUTPUT_LINES:
                log.info(
                    "a worker without a message prints: %s",
                    fields(pid=worker.pid, text=line[:OUTPUT_WIDTH]),
                )
