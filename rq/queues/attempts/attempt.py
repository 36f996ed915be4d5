"""An attempt: a message from its claim until it goes on; and a batch of them.

One object for each claim: what is reserved for it, the script that works on it, what that
has said, and the one decision about its end. A batch holds the attempts that share one
process until that has ended; each of them still ends by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from rq.errors import WrongState
from rq.files.beneath import Stamp
from rq.message.limits import NONE
from rq.message.message import Message
from rq.proc.spawn import Termination
from rq.queues.attempts import outcome
from rq.queues.attempts.outcome import Outcome
from rq.queues.attempts.phases import Phase, Step, next_phase
from rq.replies import Result
from rq.scripts import log as stdio
from rq.scripts.log import PassedLog, StdioLog
from rq.scripts.pipe import Said
from rq.scripts.script import Script
from rq.scripts.slots import Slot
from rq.scripts.time_limits import Timed
from rq.scripts.worker import OpenLog, Worker
from rq.words.states import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A message that was taken to be run, and what is reserved for it."""

    message: Message
    slot: Slot
    seq: int  # of the event that brought the message into que, or told its content
    wait_us: int
    key: str | None = None  # exclusion key
    worker: PoolWorker | None = None  # reserved; None: a script is started
    batch_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A script at work on a message, from its start on."""

    script: Script
    log: StdioLog | PassedLog
    batch_said: Said | None = None  # what its batch has said for all messages
    # Returns the last line that the script printed; None: its exit status says nothing.
    last_printed: Callable[[], str] | None = None
    began: float = field(default_factory=time.monotonic)
    began_at: float = field(default_factory=time.time)


class Attempt:
    """A message that is claimed, until it goes on."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.message = claim.message
        self.msg_id = claim.message.msg_id
        self.slot = claim.slot
        self.phase = Phase.CLAIMED
        self.said = Said()
        # Of its file `msg` as it was read at its claim, or at the start.
        self.stamp: Stamp | None = None
        self.questions = 0  # that its script has asked, and that are not yet answered
        self.cut_short = False  # RQ itself ends it, because the queue stops
        self.termination: Termination | None = None
        self.outcome: Outcome | None = None  # decided once, when its script is done
        self.limits = NONE
        self.timed: Timed | None = None  # its script, if its time is limited
        self._work: Work | None = None

    # ---- its script

    @property
    def work(self) -> Work:
        """The script at work on it."""
        assert self._work is not None, "nothing was started for it"
        return self._work

    @property
    def script(self) -> Script:
        return self.work.script

    @property
    def text(self) -> str:
        """The last text about its message, for people; else that of its batch."""
        batch = self.work.batch_said
        return self.said.text or (batch.text if batch else "")

    @property
    def result(self) -> str | None:
        """The value that was said of its message, for programs; else that of its batch."""
        batch = self.work.batch_said
        if self.said.result is not None or batch is None:
            return self.said.result
        return batch.result

    @property
    def run_seconds(self) -> float:
        return time.monotonic() - self.work.began

    # ---- its phases

    @property
    def at_work(self) -> bool:
        """Whether its script works on it."""
        return self.phase in (Phase.STARTING, Phase.RUNNING)

    @property
    def has_ended(self) -> bool:
        """Whether its message has gone on."""
        return self.phase is Phase.ENDED

    def start(self, work: Work) -> None:
        """Go on with the script that was started for it."""
        self.phase = next_phase(self.phase, Step.START)
        self._work = work

    def hand_over(self, work: Work) -> None:
        """Go on with a script that runs: a long-lived worker, or that of its batch."""
        self.phase = next_phase(self.phase, Step.HAND_OVER)
        self._work = work

    def hear(self) -> None:
        """Go on: its script has said a line."""
        self.phase = next_phase(self.phase, Step.HEAR)
        if self.timed is not None:
            self.timed.hear()

    def finish(self, termination: Termination) -> None:
        """Go on: its script has exited, or is ready for the next message."""
        self.phase = next_phase(self.phase, Step.FINISH)
        self.termination = termination

    def end(self) -> None:
        """Note that its message goes on; WrongState when it has before."""
        self.phase = next_phase(self.phase, Step.END)

    # ---- its end

    def decide(self, decided: Outcome) -> Outcome:
        """Keep and return what becomes of its message; WrongState at a second decision."""
        if self.outcome is not None:
            raise WrongState("how an attempt ends is decided once")
        self.outcome = decided
        return decided

    def cancel(self, who: str) -> None:
        """Make it end as cancelled by `who`, whatever its script says from now on."""
        self.said.by = self.said.by or who
        if self.outcome is not None:
            self.outcome = outcome.cancelled(self.said.by)

    def close_log(self, wanted: bool) -> None:
        """Write the last line of its log; a log is `wanted` though nothing was said."""
        how = self.termination
        if how is not None:
            last = stdio.last_line(
                self.script.pid, how.exit, how.signal, self.run_seconds
            )
            self.work.log.end(last, wanted)


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
        """Make its messages end as cancelled by `who`, except those of which the script
        has said how they end."""
        self.said.by = self.said.by or who
        for attempt in self:
            if attempt.outcome is not None and attempt.said.word is None:
                attempt.cancel(self.said.by)

    def finish(self, termination: Termination) -> None:
        """Note that its process is done with it: it has exited, or is ready for
        another."""
        self.termination = termination

    def finish_message(self, attempt: Attempt) -> None:
        """Note that the script is done with a message."""
        how = self.termination
        # What its process used of the processor it used for all of them.
        alone = _LIVES if how is None else replace(how, cpu_us=None, max_rss=None)
        attempt.finish(alone)

    def count_end(self, event: Event) -> None:
        """Count a message that has gone on."""
        self.ended[event] = self.ended.get(event, 0) + 1


Task: TypeAlias = Attempt | Batch  # what a long-lived worker is handed
PoolWorker: TypeAlias = Worker[Task]


def starts_of_ended(message: Message, status: Result) -> int:
    """Return the starts of a message that has ended, from its file `status` if that
    tells: a start alone does not rewrite its file `msg`."""
    return status.get("attempt", message.attempt)
