"""Long-lived workers at work: wanted, heard, and cleared away when they have left."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

from rq.logs import fields
from rq.queues.attempts import worker_protocol
from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.worker import Worker
from rq.queues.owner import Owner
from rq.queues.runner.orphans import Orphans
from rq.queues.runner.pool import Pool
from rq.queues.runner.script_file import MISSING, SCRIPT_SECONDS, ScriptFile
from rq.scripts.slots import Slots

log = logging.getLogger(__name__)


class Staying:
    """The pool of a queue, and what its comings and goings mean for messages."""

    def __init__(
        self,
        owner: Owner,
        slots: Slots,
        null: int,
        file: ScriptFile,
        orphans: Orphans,
    ) -> None:
        self._owner = owner
        self._file = file
        self._orphans = orphans
        self.on_exited: Callable[[Attempt], None]  # the attempt of one is over
        self.on_unread: Callable[[Attempt], None]  # it has not read its message
        self.pool = Pool(owner, slots, null, self._ready, self._left)

    def want(self, now: float) -> float | None:
        """See to it that there will be a worker for what is due; return when to look
        again."""
        first = self._owner.backlog.waiting.first_due()
        if first is None:
            self._file.is_back()  # nobody waits for it: nothing is known
        if first is None or first > now:
            return first
        try:
            return self.pool.grow(self._file.path, now)
        except OSError as error:
            text = f"{self._owner.config.script}: {error.strerror or error}"
            log.warning("a worker could not be started: %s", fields(reason=text))
            if error.errno in MISSING:
                self._file.fail(text, now)
            return now + SCRIPT_SECONDS

    def _ready(self, worker: Worker) -> None:
        if worker.attempt is not None:
            self.on_exited(worker.attempt)
            return
        self._file.is_back()
        self._owner.wake()

    def _left(self, worker: Worker) -> None:
        """A long-lived worker has ended."""
        if worker.attempt is not None and not worker.refused:
            self.on_exited(worker.attempt)
            return
        if worker.attempt is not None:
            self.on_unread(worker.attempt)
        if not worker.hung_up:
            self._left_unasked(worker, self._owner.spool.clock())
        forget = functools.partial(self._forget, worker)
        self._orphans.clear(worker.script, worker.slot, False, forget)

    def _left_unasked(self, worker: Worker, now: float) -> None:
        self.pool.note_failure(worker, now)
        ending = worker.script.ending
        assert ending is not None
        text = worker_protocol.died(ending.exit, ending.signal, worker.greeted)
        log.warning("%s: %s", text, fields(pid=worker.pid))
        if not worker.greeted and not self.pool.free:
            self._file.fail(f"{self._owner.config.script}: {text}", now)

    def _forget(self, worker: Worker) -> None:
        self.pool.forget(worker)
        self._owner.wake()
