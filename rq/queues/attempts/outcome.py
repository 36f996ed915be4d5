"""The outcome of an attempt, decided from what its script said and how it exited: one
rule, pure.

The first completion word of a run decides; the text is that of its last line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rq import back_off
from rq.message import retry
from rq.message.causes import Cause
from rq.message.message import Message
from rq.message.retry import Retry
from rq.scripts.pipe import Said, Verb
from rq.words import wording
from rq.words.states import Event

WELL = frozenset({Event.FINISH, Event.RELAY})
AGAIN = frozenset({Event.RETRY, Event.REQUEUE})
# What a script says of its end rules over the setting `retry`; these are no such words.
_LEAVES_OPEN = frozenset({None, Verb.DONE, Verb.RELAYED})
_TO_ERR, _TO_QUE = "MOVING TO ERR", "RUNNING IT AGAIN"  # words of its status


@dataclass(frozen=True, slots=True)
class Outcome:
    """The event that ends an attempt, why, and what to tell."""

    event: Event
    cause: Cause
    text: str
    delay: float = 0.0
    dest: str | None = None  # the queue that is owed a copy
    waits_for: str | None = None  # a name; its messages wait for `delay`
    tries: int | None = None  # attempts that `retry` allows, if it has decided

    @property
    def name(self) -> str:
        return _OUTCOMES[self.event]

    @property
    def is_last(self) -> bool:
        """Whether it failed because it was tried as often as it may be."""
        return self.event is Event.FAIL and (
            self.cause.row.is_last or self.tries is not None
        )


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
    decided = _by_word(said, exit_status, signal, count, max_count)
    # Without a proper word a limit that was exceeded is its cause.
    if said.over is not None and decided.cause.row.lacks_word:
        return Outcome(Event.FAIL, said.over.cause, said.over.text)
    return decided


def _by_word(
    said: Said, exit_status: int | None, signal: str | None, count: int, max_count: int
) -> Outcome:
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


def by_rule(
    decided: Outcome,
    rule: Retry | None,
    word: Verb | None,
    how: tuple[int | None, str | None],
    message: Message,
) -> Outcome:
    """Return the outcome of a run where the setting `retry` may have it made again.

    `word` is what was said of its end, `how` its exit status and signal, `message` as it
    was before it.
    """
    lost = decided.cause is Cause.BATCH
    failed = decided.event is Event.FAIL and word in _LEAVES_OPEN
    if rule is None or not (lost or failed):
        return decided
    most = retry.most_tries(rule, message.max_count)
    covered = retry.covers(rule, decided.cause, *how)
    if not (lost or covered):
        return decided
    if message.count + 1 >= most:
        if lost:
            return _lost_too_often(message, decided.text)
        return replace(decided, tries=most)
    if not covered:
        return decided
    seconds = retry.wait(rule, message.count, message.msg_id, message.attempt)
    text = decided.text.replace(_TO_ERR, _TO_QUE, 1)
    return replace(decided, event=Event.RETRY, text=text, delay=seconds, tries=most)


def _lost_too_often(message: Message, last: str) -> Outcome:
    text = wording.lost(message.lost_attempts + 1, message.count + 1)
    return Outcome(Event.FAIL, Cause.CRASH_LIMIT, _with_last(text, last))


def _with_last(limit: str, last: str) -> str:
    """Return that a limit ends a message, and what its last attempt said: the reason,
    which is said nowhere else."""
    return f"{limit} - {last}" if last else limit


def decide_in_batch(
    own: Said,
    batch: Said,
    exit_status: int | None,
    signal: str | None,
    message: Message,
) -> Outcome:
    """Return the outcome of a message whose batch has ended; `message` as it was before.

    What was said of it alone stands, however the process ended. The last word of the
    batch is for the rest; without a proper one their attempt is lost, and counted.
    """
    count, max_count = message.count, message.max_count
    if own.word is not None:
        return decide(own, 0, None, count, max_count)
    failed = batch.by or batch.unreadable or batch.over or batch.word is Verb.ERR
    if failed or (exit_status == 0 and batch.word is not None):
        return decide(batch, exit_status, signal, count, max_count)
    how = signal if exit_status is None else f"exit status {exit_status}"
    said = f"its last words: {batch.text}" if batch.text else "it reported nothing"
    text = f"its batch ended with {how}; {said}"
    if count + 1 >= max_count:
        return _lost_too_often(message, text)
    again = back_off.delay(count + 1)
    return Outcome(Event.RETRY, Cause.BATCH, text, again)


def _improper(said: Said, exit_status: int | None, signal: str | None) -> Outcome:
    word = said.word or "none"
    how = signal if exit_status is None else exit_status
    text = (
        f"PROCESS EXITED IMPROPERLY - {_TO_ERR} - "
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
        text = _with_last("HIT MAX RESEND COUNT - MOVING TO ERR", said.text)
        return Outcome(Event.FAIL, Cause.RESEND_LIMIT, text)
    return Outcome(Event.RETRY, Cause.RESEND, said.text, said.delay)
