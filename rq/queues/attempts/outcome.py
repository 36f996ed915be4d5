"""What becomes of a message when its script has ended: one rule, pure.

The first completion word of a run decides; the text is that of its last line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rq import back_off
from rq.causes import Cause
from rq.pipe import Verb
from rq.scripts.words import Said
from rq.states import Event

WELL = frozenset({Event.FINISH, Event.RELAY})
AGAIN = frozenset({Event.RETRY, Event.REQUEUE})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The event that ends an attempt, why, and what to tell."""

    event: Event
    cause: Cause
    text: str
    delay: float = 0.0
    dest: str | None = None  # the queue that is owed a copy
    waits_for: str | None = None  # a name; its messages wait for `delay`

    @property
    def name(self) -> str:
        return _OUTCOMES[self.event]


_OUTCOMES = {
    Event.FINISH: "done",
    Event.RELAY: "relayed",
    Event.FAIL: "err",
    Event.RETRY: "retry",
    Event.REQUEUE: "requeue",
}


def decide(
    said: Said, exit_status: int | None, signal: str | None, count: int, max_count: int
) -> Outcome:
    """Return the outcome of a run; `count` is that of the message before it."""
    if said.by is not None:
        return cancelled(said.by)
    if said.unreadable is not None:
        return Outcome(Event.FAIL, Cause.BAD_REPORT, said.unreadable)
    if said.word is Verb.ERR:
        return Outcome(Event.FAIL, Cause.SAID_ERR, said.text)
    if exit_status != 0:
        return _improper(said, exit_status, signal)
    return _proper(said, count, max_count)


def cancelled(who: str) -> Outcome:
    """Return the outcome of a run that was cancelled."""
    return Outcome(Event.FAIL, Cause.CANCELLED, f"cancelled by {who}")


def by_exit(decided: Outcome, text: str, last_printed: Callable[[], str]) -> Outcome:
    """Return the outcome of a script that need not say how it ended, and has not: its
    exit status says so. `text` is the last of its progress."""
    if decided.cause is Cause.NO_WORD:
        return Outcome(Event.FINISH, Cause.EXITED, text)
    if decided.cause in (Cause.EXIT, Cause.SIGNAL):
        text = last_printed() or "it printed nothing"
        return Outcome(Event.FAIL, decided.cause, text)
    return decided


def decide_in_batch(
    own: Said,
    batch: Said,
    exit_status: int | None,
    signal: str | None,
    count: int,
    max_count: int,
) -> Outcome:
    """Return the outcome of a message whose batch has ended.

    What was said of it alone stands, however the process ended. The last word of the
    batch is for the rest; without a proper one their attempt is lost, and counted.
    """
    if own.word is not None:
        return decide(own, 0, None, count, max_count)
    failed = batch.by or batch.unreadable or batch.word is Verb.ERR
    if failed or (exit_status == 0 and batch.word is not None):
        return decide(batch, exit_status, signal, count, max_count)
    if count + 1 >= max_count:
        return Outcome(Event.FAIL, Cause.CRASH_LIMIT, f"lost {count + 1} times")
    how = signal if exit_status is None else f"exit status {exit_status}"
    said = f"its last words: {batch.text}" if batch.text else "it reported nothing"
    text = f"its batch ended with {how}; {said}"
    again = back_off.delay(count + 1)
    return Outcome(Event.RETRY, Cause.BATCH, text, again)


def _improper(said: Said, exit_status: int | None, signal: str | None) -> Outcome:
    word = said.word or "none"
    how = signal if exit_status is None else exit_status
    text = (
        "PROCESS EXITED IMPROPERLY - MOVING TO ERR - "
        f"Completion was {word} but exit status was {how}"
    )
    if said.text:
        text = f"{text} - {said.text}"
    return Outcome(Event.FAIL, Cause.SIGNAL if signal else Cause.EXIT, text)


def _proper(said: Said, count: int, max_count: int) -> Outcome:
    if said.word is Verb.DONE:
        return Outcome(Event.FINISH, Cause.DONE, said.text)
    if said.word is Verb.FORWARD:
        return Outcome(Event.FINISH, Cause.FORWARDED, said.text, dest=said.dest)
    if said.word is Verb.RELAYED:
        return Outcome(Event.RELAY, Cause.RELAYED, said.text)
    if said.word is None:
        return Outcome(Event.FAIL, Cause.NO_WORD, said.text)
    if said.word is Verb.LATER:
        return Outcome(
            Event.RETRY, Cause.LATER, said.text, said.delay, waits_for=said.waits_for
        )
    if count + 1 >= max_count:
        text = "HIT MAX RESEND COUNT - MOVING TO ERR"
        return Outcome(Event.FAIL, Cause.RESEND_LIMIT, text)
    return Outcome(Event.RETRY, Cause.RESEND, said.text, said.delay)
