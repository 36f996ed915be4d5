"""A stall: messages of a queue are due, and none starts or ends.

It does not count as standing still when it is paused or down, when all slots are at work,
or when its script cannot be started, which is told separately. A stall is told when it has
lasted for PATIENCE.
"""

from __future__ import annotations

import time

from rq.config.admin import Admin
from rq.config.checks import PERSISTENT, PULL
from rq.queues.attempts.attempt import PoolWorker
from rq.queues.owner.owner import Owner
from rq.replies import elsewhere
from rq.scripts.worker_protocol import WorkerPhase
from rq.spool import LAG_MESSAGES
from rq.words.wording import duration

PATIENCE = 60.0  # seconds that it may stand still before that is shown
SLOW_START = 5.0  # seconds; then it is told which worker has not said `ready`
_NAMED = 3


class Stall:
    """What holds up the messages of a queue, and since when."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._cause: tuple[str, int] | None = None
        self._since = 0.0  # monotonic

    def look(self) -> None:
        """Look what holds up the messages that are due. The time starts again when that
        has changed since the last look, or when a message has started or ended."""
        cause = _cause(self._owner)
        if cause != self._cause:
            self._cause, self._since = cause, time.monotonic()

    def sentence(self) -> tuple[str, str] | None:
        """Return what holds up a queue that stands still (slots, start, workers or
        outside) and a sentence about it; None while it is well."""
        self.look()
        if self._cause is None:
            return None
        kind, _ = self._cause
        if kind == "slots":  # waiting does not change this
            return kind, "messages are due, and num_workers is 0: nothing runs"
        age = time.monotonic() - self._since
        if age < PATIENCE:
            return None
        if kind == "workers":
            return kind, f"messages are due, and {_no_worker(self._owner)}"
        if kind == "outside":
            return kind, f"messages are due, and {_destinations(self._owner)}"
        nothing = f"nothing has started for {duration(age)}"
        why = _why(self._owner).removesuffix(".")
        return kind, f"messages are due, slots are free, and {nothing}: {why}"


def _cause(owner: Owner) -> tuple[str, int] | None:
    """Return what holds up due messages, and a counter that goes up when one moves."""
    if (
        owner.admission.admin is not Admin.UP
        or owner.admission.stopping
        or owner.script.error is not None
    ):
        return None
    if owner.admission.disk_failed or owner.spool.journal_failed:
        return None  # `Admission.closed` says why
    now = owner.spool.clock()
    if owner.backlog.has_due(now):
        if owner.config.num_workers == 0:
            return _elsewhere(owner) if owner.config.pull is not None else ("slots", 0)
        return ("start", owner.attempts.starts) if owner.slots_free > 0 else None
    held = owner.backlog.waiting.held_outside()
    return ("outside", owner.successes) if held else None


def _elsewhere(owner: Owner) -> tuple[str, int] | None:
    """Return what holds up messages that only workers elsewhere take."""
    return None if owner.remote_workers.are_there() else ("workers", 0)


def _no_worker(owner: Owner) -> str:
    """Say that no worker elsewhere takes messages, and what to do."""
    said = elsewhere.none_asks(owner.remote_workers.facts(0), time.time())
    start = elsewhere.command(owner.url, owner.config.pull or PULL)
    return f"{said}: start one with `{start}`"


def _why(owner: Owner) -> str:
    if owner.spool.lag >= LAG_MESSAGES:
        return f"{owner.spool.lag} folders have to be made first"
    if owner.script.lack is not None:
        return f"no process could be started: {owner.script.lack}"
    if lacks_worker(owner):
        return why_no_worker(owner)
    return f"log/queue-{owner.name}.log may say why"


def _destinations(owner: Owner) -> str:
    """Say what messages wait for outside, the next one first."""
    held = sorted(owner.backlog.waiting.held_outside(), key=lambda hold: hold[1])
    name, until = held[0]
    names = ", ".join(other for other, _ in held[:_NAMED])
    more = f" and {len(held) - _NAMED} more" if len(held) > _NAMED else ""
    away = max(0.0, until - owner.spool.clock())
    return f"wait for {names}{more}; {name} is tried again in {duration(away)}"


def why_no_worker(owner: Owner) -> str:
    """Return in a sentence why no long-lived worker is free."""
    slow = slow_worker(owner)
    if slow is None:
        return "No worker is ready yet."
    age = duration(time.monotonic() - slow.began)
    return (
        f"No worker is ready: the one that was started {age} ago (pid {slow.pid}) has "
        "not reported `ready` yet."
    )


def slow_worker(owner: Owner) -> PoolWorker | None:
    """Return the worker that was started a while ago and is not ready; None: none is."""
    for worker in owner.attempts.workers.values():
        if worker.phase is WorkerPhase.STARTING:
            return worker if time.monotonic() - worker.began >= SLOW_START else None
    return None


def lacks_worker(owner: Owner) -> bool:
    """Whether messages wait for a long-lived worker to be ready."""
    free = any(
        worker.phase is WorkerPhase.FREE for worker in owner.attempts.workers.values()
    )
    return owner.config.worker == PERSISTENT and not free
