"""What follows when the rule of a message has decided: one line, and it is final."""

from __future__ import annotations

from collections.abc import Sequence

from rq.message.after import FAILURES, OPEN, Rule, Standing, Verdict
from rq.message.causes import Cause
from rq.message.fields import JsonObject
from rq.message.standings import NOT_RUN
from rq.queues.owner.owner import Owner
from rq.queues.schedule.predecessors import standing_in
from rq.spool.record import Facts
from rq.words.states import Event, Role

BY_RULE = "rule"
_NAMED = 3  # predecessors in a sentence
_SAID = {
    Standing.FAILED: "failed",
    Standing.CANCELLED: "was cancelled",
    Standing.DELETED: "was deleted",
    Standing.NOT_RUN: "was not run",
    Standing.NOT_NEEDED: "was not needed",
    Standing.UNKNOWN: "is not there any more",
    Standing.WAITING: "has not ended",
    Standing.GOES_ON: "goes on under another id",
}


def decide(owner: Owner, msg_id: str, verdict: Verdict) -> None:
    """Let a message run, or end it, as its rule has decided."""
    if verdict is Verdict.RUN:
        end: JsonObject = {"end": "run", "by": BY_RULE, "at": owner.spool.clock()}
        owner.backlog.free(msg_id, end)
    elif verdict is Verdict.DISCARD:
        owner.discard(msg_id)  # its flow was not begun
    elif verdict is Verdict.NOT_NEEDED:
        _end(
            owner, msg_id, Event.FINISH, _facts(Cause.NOT_NEEDED, "done", "not needed")
        )
        owner.count("done")
    else:
        text = why(owner, msg_id)
        is_err = verdict is Verdict.ERR
        facts = _facts(Cause.AFTER, "err" if is_err else NOT_RUN, text)
        _end(owner, msg_id, Event.FAIL, facts)
        if is_err:
            owner.count("err")
        else:
            owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)
    owner.wake()


def _facts(cause: Cause, outcome: str, text: str) -> Facts:
    return {"cause": cause, "outcome": outcome, "text": text}


def _end(owner: Owner, msg_id: str, event: Event, facts: Facts) -> None:
    message = owner.spool.read(msg_id)
    more = owner.spool.owed_by(message, facts)
    owner.backlog.remove(msg_id)
    owner.spool.fire(msg_id, event, Role.QUEUE, facts=facts, **more)


def why(owner: Owner, msg_id: str) -> str:
    """Return which predecessors have decided that a message is not run, in words."""
    waits, tally = owner.backlog.predecessors, owner.backlog.predecessors.tally(msg_id)
    wanted = FAILURES if tally.failed else {Standing.NOT_RUN}
    rows = waits.standing_so(msg_id, wanted, _NAMED)
    return _listed(rows, tally.failed or tally.not_run)


def keeping(owner: Owner, msg_id: str) -> str:
    """Return for which predecessors a message waits, in words; those first that have
    failed, for they keep it until a person does something."""
    waits, tally = owner.backlog.predecessors, owner.backlog.predecessors.tally(msg_id)
    rows = waits.standing_so(msg_id, FAILURES, _NAMED)
    wait = owner.spool.entry(msg_id).after
    if not rows or wait is None or wait.rule is not Rule.DONE:
        rows = waits.standing_so(msg_id, OPEN, _NAMED)
        return _listed(rows, tally.open)
    return _listed(rows, tally.failed + tally.open)


def _listed(rows: Sequence[tuple[str, str]], number: int) -> str:
    words = [f"{place}, which {_SAID[standing_in(word)]}" for place, word in rows]
    more = f" and {number - len(rows)} more" if number > len(rows) else ""
    return "; ".join(words) + more
