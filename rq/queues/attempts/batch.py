"""A batch: messages that one process works on together, until it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from rq.limits import NONE
from rq.proc.spawn import Termination
from rq.queues.attempts.attempt import Attempt, Work
from rq.scripts.log import StdioLog
from rq.scripts.script import Script
from rq.scripts.slots import Slot
from rq.scripts.time_limits import Timed
from rq.scripts.words import Said
from rq.scripts.worker import OpenLog, Worker
from rq.states import Event

_LIVES = Termination(
    None, None, None, None
)  # of a message that ends before the process


class Batch:
    """Attempts that share one process; named by the first message and its attempt."""

    def __init__(
        self,
        batch_id: str,
        attempts: list[Attempt],
        slot: Slot,
        worker: PoolWorker | None = None,
    ) -> None:
        self.batch_id = batch_id
        self.slot = slot
        self.worker = worker  # reserved; None: a script is started
        # How its process has ended, or that it is ready for another batch.
        self.termination: Termination | None = None
        self.is_ending = False
        self.output: OpenLog | None = None  # where its worker's output goes
        self._attempts = {attempt.msg_id: attempt for attempt in attempts}
        self.ended: dict[Event, int] = {}
        self.lost = 0  # messages without a word when its process died
        self.said = Said()  # for the messages of which nothing else is said
        self._work: Work | None = None
        self.cut_short = False  # RQ itself ends it, because the queue stops
        self.began = time.monotonic()
        self.began_at = time.time()
        self.timed: Timed | None = None  # its script, if its time is limited
        self.limits = NONE  # the strictest of its messages
        self.oddities = 0  # lines that could not be understood

    @property
    def seq(self) -> int:
        """Return the last event that brought one of its messages into que."""
        return max(attempt.claim.seq for attempt in self._attempts.values())

    # ---- its messages

    def __len__(self) -> int:
        """Return how many messages it has, also those that have ended."""
        return len(self._attempts)

    @property
    def left(self) -> int:
        """How many messages have not ended."""
        return len(self._attempts) - sum(self.ended.values())

    def __contains__(self, msg_id: str) -> bool:
        return msg_id in self._attempts

    def __iter__(self) -> Iterator[Attempt]:
        """Give the attempts that have not ended."""
        attempts = list(self._attempts.values())
        return (attempt for attempt in attempts if not attempt.has_ended)

    def get(self, msg_id: str) -> Attempt | None:
        """Return the attempt on one of its messages."""
        return self._attempts.get(msg_id)

    @property
    def first_id(self) -> str:
        """Its first message that has not ended; the first when all have."""
        attempt = next(iter(self), None)
        return next(iter(self._attempts)) if attempt is None else attempt.msg_id

    # ---- its life

    @property
    def script(self) -> Script | None:
        """Its script, from its start on."""
        return self._work.script if self._work else None

    @property
    def work(self) -> Work:
        """The script at work on it."""
        assert self._work is not None, "nothing was started for it"
        return self._work

    def drop(self, attempt: Attempt) -> None:
        """Go on without a message that cannot take part."""
        del self._attempts[attempt.msg_id]

    @property
    def at_work(self) -> bool:
        """Whether its process works on it."""
        return self._work is not None and self.termination is None

    def start(self, script: Script, log: StdioLog) -> None:
        """Go on with its process, and all its messages with it."""
        self._work = Work(script=script, log=log, batch_said=self.said)
        for attempt in self:
            attempt.hand_over(self._work)

    def cancel(self, who: str) -> None:
        """Let its messages end as cancelled by `who`, except those of which the script has
        said how they end."""
        self.said.by = self.said.by or who
        for attempt in self:
            if attempt.outcome is not None and attempt.said.word is None:
                attempt.cancel(self.said.by)

    def finish(self, termination: Termination) -> None:
        """Let its process be done with it: it has exited, or is ready for another."""
        self.termination = termination

    def finish_message(self, attempt: Attempt) -> None:
        """Let the script be done with a message."""
        how = self.termination
        # What its process used of the processor it used for all of them.
        alone = _LIVES if how is None else replace(how, cpu_us=None, max_rss=None)
        attempt.finish(alone)

    def count_end(self, event: Event) -> None:
        """Count a message that has gone on."""
        self.ended[event] = self.ended.get(event, 0) + 1


Task = Attempt | Batch  # what a long-lived worker is handed
PoolWorker = Worker[Task]
