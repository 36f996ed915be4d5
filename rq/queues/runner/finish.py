"""The end of an attempt of a script: what it said and how it exited, decided once."""

from __future__ import annotations

import logging

from rq import names
from rq.access.attempt_tokens import AttemptTokens
from rq.config import secrets
from rq.logs import fields
from rq.message.causes import Cause
from rq.queues.attempts import outcome
from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.outcome import WELL, Outcome
from rq.queues.delivery import owed
from rq.queues.owner.owner import Owner
from rq.queues.runner import end
from rq.queues.runner.abort import Abort
from rq.queues.runner.end import End
from rq.scripts.time_limits import over_resources
from rq.spool.record import Facts
from rq.words.states import Event

CUT_SHORT = Outcome(Event.REQUEUE, Cause.STOP, "cut short by a stop of the queue")

log = logging.getLogger(__name__)


class Finisher:
    """Ends the attempts of one queue, also those that did not begin."""

    def __init__(self, owner: Owner, tokens: AttemptTokens) -> None:
        self._owner = owner
        self._tokens = tokens

    def decide(self, attempt: Attempt) -> Outcome:
        """Decide, once, what becomes of a message when its script is done with it."""
        how, message = attempt.termination, attempt.message
        assert how is not None
        if attempt.said.over is None:
            ran = attempt.run_seconds
            attempt.said.over = over_resources(
                attempt.limits, how, ran, attempt.script.oom_kills
            )
        decided = outcome.decide(
            attempt.said, how.exit, how.signal, message.count, message.max_count
        )
        last_printed = attempt.work.last_printed
        if attempt.cut_short and decided.cause.row.lacks_word:
            decided = CUT_SHORT
        elif last_printed is not None and attempt.said.word is None:
            decided = outcome.by_exit(decided, attempt.said.text, last_printed)
        rule, how_it_ended = self._owner.config.retry, (how.exit, how.signal)
        decided = outcome.by_rule(
            decided, rule, attempt.said.word, how_it_ended, message
        )
        return attempt.decide(owed.check_target(self._owner.settings, decided))

    def fire(self, attempt: Attempt, decided: Outcome) -> None:
        """End an attempt as decided, with its riders and what it owes."""
        owner = self._owner
        attempt.end()
        self._tokens.end(attempt.msg_id)
        owner.attempts.forget(attempt)
        end.fire(
            owner,
            End(
                message=attempt.message,
                decided=decided,
                facts=_facts(attempt, decided),
                key=attempt.claim.key,
                touched=_was_touched(owner, attempt),
                printed=_printed(attempt),
            ),
        )
        _tell(attempt, decided)

    def give_back(self, attempt: Attempt, why: Abort) -> None:
        """End an attempt that did not begin."""
        attempt.end()
        self._tokens.end(attempt.msg_id)
        self._owner.attempts.forget(attempt)
        end.give_back(self._owner, attempt.message, attempt.claim.key, why)


def _was_touched(owner: Owner, attempt: Attempt) -> bool:
    """Whether the file `msg` was changed since the start. With a long-lived worker its
    folder may not be made yet: then it was not."""
    if attempt.stamp is None and attempt.claim.worker is not None:
        return False
    return owner.spool.run_folders.stamp(attempt.msg_id) != attempt.stamp


def _printed(attempt: Attempt) -> tuple[int, int] | None:
    """Return where in its log the output of an attempt is; that of a batch belongs to
    no single attempt."""
    return None if attempt.claim.batch_id is not None else attempt.work.log.printed


def _tell(attempt: Attempt, decided: Outcome) -> None:
    # These come by the thousand a second: the journal has them, the log does not.
    many = attempt.claim.worker is not None or attempt.claim.batch_id is not None
    level = logging.DEBUG if many and decided.event in WELL else logging.INFO
    if not log.isEnabledFor(level):
        return
    log.log(
        level,
        "%s: %s",
        decided.event,
        fields(
            msg_id=attempt.msg_id,
            cause=decided.cause,
            pid=attempt.script.pid,
            text=secrets.host_only(decided.text),  # of whatever it asked
        ),
    )


def _facts(attempt: Attempt, decided: Outcome) -> Facts:
    how, batch_id = attempt.termination, attempt.claim.batch_id
    assert how is not None
    facts: Facts = {
        "cause": decided.cause,
        "outcome": decided.name,
        "text": decided.text,
        "exit": how.exit,
        "signal": how.signal,
        "wait_us": attempt.claim.wait_us,
        "run_us": int(attempt.run_seconds * 1e6),
        "cpu_us": how.cpu_us,
        "max_rss": how.max_rss,
        "created_us": int(names.created(attempt.msg_id) * 1e6),
        "pid": attempt.script.pid,
    }
    if (part := attempt.work.log.part) is not None:
        facts["log"] = part
    if attempt.claim.worker is not None:
        facts["worker"] = attempt.slot.number
    if (result := attempt.result) is not None:
        facts["result"] = result
    if decided.tries is not None:
        facts["tries"] = decided.tries
    return facts if batch_id is None else {**facts, "batch": batch_id}
