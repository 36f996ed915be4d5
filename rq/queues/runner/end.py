"""The end of an attempt, of a script here or of a lease: one event, its facts, its
riders, and what it owes to other queues."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rq.logs import fields
from rq.message.causes import Cause
from rq.message.fields import Attachment
from rq.message.message import Message
from rq.queues.attempts.outcome import AGAIN, WELL, Outcome
from rq.queues.delivery import owed
from rq.queues.owner.owner import Owner
from rq.queues.runner import abort
from rq.queues.runner.abort import Abort
from rq.spool.news import Printed
from rq.spool.record import Facts, More, OutEntry
from rq.words.states import Event, Role, State

_NOT_BEGUN = {Event.FAIL: "err", Event.REQUEUE: "requeue"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An attempt that is over."""

    message: Message
    decided: Outcome
    facts: Facts
    key: str | None = None  # its exclusion key, which is free from now on
    touched: bool = False  # its script has written to the file `msg`
    # Files that become attachments, if the attempt has ended well.
    results: Mapping[str, Attachment] = field(default_factory=dict)
    owes: Sequence[OutEntry] = ()  # what it owes beside webhooks and its copy
    printed: Printed | None = None  # where in its log that is
    more: More = field(default_factory=More)  # further fields of its line


def fire(owner: Owner, end: End) -> None:
    """End an attempt as decided, with its riders and what it owes; after an error that no
    rule covers, in err."""
    msg_id = end.message.msg_id
    try:
        _fire(owner, end)
    except Exception as error:
        log.exception("RQ failed to end a message: %s", fields(msg_id=msg_id))
        if owner.spool.find(msg_id) is not State.RUN:
            return
        text = f"{end.decided.name}, but {abort.unforeseen(error)}"
        facts: Facts = {"cause": Cause.FAULT, "text": text, "outcome": "err"}
        owner.spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
        owner.backlog.release_riders(msg_id)
    finally:
        owner.backlog.free_key(end.key, msg_id)
        owner.wake()


def give_back(
    owner: Owner,
    message: Message,
    key: str | None,
    why: Abort,
    more: More | None = None,
) -> None:
    """End an attempt on `message` that did not begin; `key` is its exclusion key."""
    msg_id = message.msg_id
    unchanged: Message | None = None
    if why.event is Event.REQUEUE:  # this was no attempt
        now = owner.spool.clock()
        due = now + why.wait if why.wait else min(message.due, now)
        changed = message.with_(attempt=message.attempt - 1, due=due)
        unchanged = message = changed
    name = _NOT_BEGUN[why.event]
    facts: Facts = {"cause": why.cause, "text": why.text, "outcome": name}
    line: More = {**(more or {})}
    if why.event is Event.FAIL:
        line.update(owner.spool.owed_by(message, facts))
    owner.spool.fire(
        msg_id,
        why.event,
        Role.QUEUE,
        message=unchanged,
        facts=facts,
        spare=message,
        **line,
    )
    _see(owner, msg_id, why)
    owner.backlog.free_key(key, msg_id)
    owner.backlog.release_riders(msg_id)
    if why.event is Event.REQUEUE:
        owner.backlog.put(msg_id, message)
    owner.wake()


def _fire(owner: Owner, end: End) -> None:
    message, msg_id = end.message, end.message.msg_id
    decided = _with_room(owner, message, end.decided)
    riders = _riders(owner, msg_id, decided.event)
    changed = _changed(owner, message, decided, riders)
    more: More = {**end.more}
    if end.results and decided.event in WELL:
        more["results"] = list(end.results)
        all_files = {**message.attachments, **end.results}
        changed = (changed or message).with_(attachments=all_files)
    if changed is None and end.touched:
        changed = message  # its script has written to the file: write it again
    if riders:
        more["riders"], more["rides"] = riders, owner.full_id(msg_id)
    more.update(_owes(owner, changed or message, decided, end))
    line = owner.spool.fire(
        msg_id,
        decided.event,
        Role.QUEUE,
        message=changed,
        facts=end.facts,
        spare=changed or message,
        **more,
    )
    owner.backlog.forget_riders(msg_id)
    for rider in riders:
        owner.spool.ride(rider, decided.event, line)
    _see(owner, msg_id, decided)
    _hold_or_release(owner, message, decided)
    if decided.event in AGAIN:
        owner.backlog.put(msg_id, changed or message)


def _see(owner: Owner, msg_id: str, decided: Outcome | Abort) -> None:
    """Acknowledge an end that a person wanted: there is nothing to look at. Its line
    stands in the group of the end's, so nothing tells of an error meanwhile."""
    if decided.event is Event.FAIL and decided.cause.row.is_wanted:
        owner.spool.fire(msg_id, Event.DISMISS, Role.CREATOR)


def _owes(owner: Owner, message: Message, decided: Outcome, end: End) -> More:
    """Count an end, and return what it owes."""
    more: More = {}
    if decided.event not in AGAIN:
        owner.count("err" if decided.event is Event.FAIL else "done")
        settings = owner.settings
        more = owed.owes(
            owner.spool, settings, message, decided, end.facts, end.printed
        )
    if end.owes:
        more["out"] = [*end.owes, *more.get("out", ())]
    return more


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


def _riders(owner: Owner, msg_id: str, event: Event) -> list[str]:
    """Return the riders that end with a message; when it has failed, release them all."""
    if event in WELL:
        return owner.backlog.riders_of(msg_id)
    owner.backlog.release_riders(msg_id)
    return []


def _again(message: Message, decided: Outcome, now: float) -> Message:
    """Return a message that goes back into the queue. What was not told to wait is
    due at once: it was when it was claimed, whatever has become of the clock since."""
    turn = min(message.due, now)
    if decided.event is Event.REQUEUE:
        # Its file has not the number of this attempt yet.
        return message.with_(due=turn)
    if decided.waits_for is None:
        turn = now + decided.delay  # else it has its turn among those that wait with it
    if not decided.cause.row.counts:
        return message.with_(due=turn)
    return _counted(message, decided).with_(due=turn)


def _counted(message: Message, decided: Outcome) -> Message:
    """Return a message with an attempt more that counts."""
    losses = message.lost_attempts + decided.cause.row.is_lost
    return message.with_(count=message.count + 1, lost_attempts=losses)


def _changed(
    owner: Owner, message: Message, decided: Outcome, riders: list[str]
) -> Message | None:
    """Return the new content of a message whose attempt has ended, if it changed."""
    if decided.event in AGAIN:
        return _again(message, decided, owner.spool.clock())
    if decided.is_last:
        return _counted(message, decided)
    if riders:
        dups = tuple(owner.full_id(rider) for rider in reversed(riders))
        return message.with_(dups=dups)
    return None
