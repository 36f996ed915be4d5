"""The end of an attempt: one event, its facts, and what it owes to other queues."""

from __future__ import annotations

import dataclasses
import logging

from rq import names
from rq.causes import Cause
from rq.logs import fields
from rq.message import Message
from rq.queues.attempts import outcome
from rq.queues.attempts.attempt import Attempt
from rq.queues.attempts.outcome import Outcome
from rq.queues.delivery import owed
from rq.queues.owner.owner import Owner
from rq.queues.runner import abort
from rq.queues.runner.abort import Abort
from rq.spool.record import Facts, More
from rq.states import Event, Role, State

WELL = frozenset({Event.FINISH, Event.RELAY})
AGAIN = frozenset({Event.RETRY, Event.REQUEUE})
_NOT_BEGUN = {Event.FAIL: "err", Event.REQUEUE: "requeue"}
_CUT = frozenset({Cause.EXIT, Cause.SIGNAL, Cause.NO_WORD})
CUT_SHORT = Outcome(Event.REQUEUE, Cause.STOP, "cut short by a stop of the queue")

log = logging.getLogger(__name__)


class Finisher:
    """Ends the attempts of one queue, also those that did not begin."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def decide(self, attempt: Attempt) -> Outcome:
        """Decide, once, what becomes of a message when its script is done with it."""
        how, message = attempt.termination, attempt.message
        assert how is not None
        decided = outcome.decide(
            attempt.said, how.exit, how.signal, message.count, message.max_count
        )
        last_printed = attempt.work.last_printed
        if attempt.cut_short and decided.cause in _CUT:
            decided = CUT_SHORT
        elif last_printed is not None and attempt.said.word is None:
            decided = outcome.by_exit(decided, attempt.said.text, last_printed)
        return attempt.decide(owed.check_target(self._owner.root, decided))

    def fire(self, attempt: Attempt, decided: Outcome) -> None:
        """End an attempt as decided, with its riders and what it owes; after an error
        that no rule covers, in err."""
        owner = self._owner
        attempt.end()
        owner.attempts.forget(attempt)
        try:
            _fire(owner, attempt, decided)
        except Exception as error:
            msg_id = attempt.msg_id
            log.exception("RQ failed to end a message: %s", fields(msg_id=msg_id))
            if owner.spool.find(msg_id) is not State.RUN:
                return
            text = f"{decided.name}, but {abort.unforeseen(error)}"
            facts: Facts = {"cause": Cause.FAULT, "text": text, "outcome": "err"}
            owner.spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
            owner.backlog.release_riders(msg_id)
        finally:
            owner.backlog.free_key(attempt.claim.key)
            owner.wake()

    def give_back(self, attempt: Attempt, why: Abort) -> None:
        """End an attempt that did not begin."""
        owner = self._owner
        attempt.end()
        owner.attempts.forget(attempt)
        message, msg_id = attempt.message, attempt.msg_id
        unchanged: Message | None = None
        if why.event is Event.REQUEUE:  # this was no attempt
            due = owner.spool.clock() + why.wait if why.wait else message.due
            changed = message.with_(attempt=message.attempt - 1, due=due)
            unchanged = message = changed
        name = _NOT_BEGUN[why.event]
        facts: Facts = {"cause": why.cause, "text": why.text, "outcome": name}
        more: More = {}
        if why.event is Event.FAIL:
            more = owner.spool.owed_by(message, facts)
        owner.spool.fire(
            msg_id,
            why.event,
            Role.QUEUE,
            message=unchanged,
            facts=facts,
            spare=message,
            **more,
        )
        owner.backlog.free_key(attempt.claim.key)
        owner.backlog.release_riders(msg_id)
        if why.event is Event.REQUEUE:
            owner.backlog.add(msg_id, message)
        owner.wake()


def _fire(owner: Owner, attempt: Attempt, decided: Outcome) -> None:
    message, msg_id = attempt.message, attempt.msg_id
    decided = _with_room(owner, message, decided)
    facts = _facts(attempt, decided)
    riders = _riders(owner, msg_id, decided.event)
    changed = _changed(owner, message, decided, riders)
    if changed is None and _was_touched(owner, attempt):
        changed = message  # its script has written to the file: write it anew
    more: More = {}
    if riders:
        more["riders"], more["rides"] = riders, owner.full_id(msg_id)
    if decided.event not in AGAIN:
        owner.count("err" if decided.event is Event.FAIL else "done")
        ended = changed or message
        out = owed.owes(owner.spool, owner.settings, ended, decided, facts)
        if out:
            more["out"] = out
    line = owner.spool.fire(
        msg_id,
        decided.event,
        Role.QUEUE,
        message=changed,
        facts=facts,
        spare=changed or message,
        **more,
    )
    owner.backlog.forget_riders(msg_id)
    for rider in riders:
        owner.spool.ride(rider, decided.event, line)
    _hold_or_release(owner, message, decided)
    if decided.event in AGAIN:
        owner.backlog.add(msg_id, changed or message)
    _tell(attempt, decided)


def _was_touched(owner: Owner, attempt: Attempt) -> bool:
    """Whether the file `msg` was changed since the start. With a long-lived worker its
    folder may not be made yet: then it was not."""
    if attempt.stamp is None and attempt.claim.worker is not None:
        return False
    return owner.spool.run_folders.stamp(attempt.msg_id) != attempt.stamp


def _with_room(owner: Owner, message: Message, decided: Outcome) -> Outcome:
    """Return the decision; when too many names are waited for, its message alone waits."""
    name, now = decided.waits_for, owner.spool.clock()
    if name is None or owner.backlog.waiting.has_room(message.dest, name, now):
        return decided
    return dataclasses.replace(decided, waits_for=None)


def _hold_or_release(owner: Owner, message: Message, decided: Outcome) -> None:
    """Hold back, or release, the messages that wait for the same name as this one."""
    if decided.waits_for is not None:
        until = owner.spool.clock() + decided.delay
        owner.backlog.waiting.hold(
            message.msg_id, message.dest, decided.waits_for, until
        )
    elif decided.event is not Event.REQUEUE:
        owner.backlog.waiting.hold_no_longer(message.dest)


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
            text=decided.text,
        ),
    )


def _riders(owner: Owner, msg_id: str, event: Event) -> list[str]:
    """Return the riders that end with a message; when it has failed, release them all."""
    if event in WELL:
        return owner.backlog.riders_of(msg_id)
    owner.backlog.release_riders(msg_id)
    return []


def _changed(
    owner: Owner, message: Message, decided: Outcome, riders: list[str]
) -> Message | None:
    """Return the new content of a message whose attempt has ended, if it changed."""
    if decided.event is Event.RETRY:
        due = owner.spool.clock() + decided.delay
        if decided.waits_for is not None:
            due = message.due  # its turn among those that wait with it
        counted = decided.cause is not Cause.LATER
        return message.with_(count=message.count + counted, due=due)
    if decided.event is Event.REQUEUE:
        return message  # its file has not yet the number of this attempt
    if decided.cause in (Cause.RESEND_LIMIT, Cause.CRASH_LIMIT):
        return message.with_(count=message.count + 1)
    if riders:
        dups = tuple(owner.full_id(rider) for rider in reversed(riders))
        return message.with_(dups=dups)
    return None


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
    }
    return facts if batch_id is None else {**facts, "batch": batch_id}
