"""Takes back messages whose attempt was lost, and fails those that cannot be read."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from rq.errors import BadMessage, NoSuchMessage, Unread
from rq.logs import fields
from rq.message import retry
from rq.message.causes import Cause
from rq.spool import journal_search
from rq.spool.record import Facts, LeaseFields, More
from rq.spool.store import Spool
from rq.words import wording
from rq.words.states import Event, Role

_log = logging.getLogger(__name__)


def fail_malformed(
    spool: Spool, msg_id: str, reason: str, lease: LeaseFields | None = None
) -> None:
    """→ err: the message cannot be used, and says why; `lease` under which it ran."""
    _log.error(
        "a message cannot be read; RQ moves it to err: %s",
        fields(msg_id=msg_id, reason=reason),
    )
    facts: Facts = {"cause": Cause.BAD_MESSAGE, "text": reason, "outcome": "err"}
    more = _owed_by(spool, msg_id, facts)
    if lease is not None:
        more["lease"] = lease
    spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **more)


def fail_late(spool: Spool, msg_id: str, text: str) -> None:
    """que → err: its deadline has passed before it was started."""
    facts: Facts = {"cause": Cause.DEADLINE, "text": text, "outcome": "err"}
    more = spool.owed_by(spool.read(msg_id), facts)
    spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts, **more)


def _owed_by(spool: Spool, msg_id: str, facts: Facts) -> More:
    """Return what the end of a message owes whose file cannot be read: what the journal
    holds of it names its webhooks."""
    entry = spool.entries[msg_id]
    journal = spool.journal.journal_id
    message = journal_search.last_copy(spool.queue, journal, msg_id, entry.seq)
    if message is None:
        return {}
    message = message.with_(
        count=entry.count, attempt=max(message.attempt, entry.attempt)
    )
    return spool.owed_by(message, facts)


@dataclass(frozen=True, slots=True)
class Lost:
    """Why an attempt was lost."""

    cause: Cause
    text: str = "the attempt was lost"
    lease: LeaseFields | None = None  # under which it was made
    log: list[int | None] | None = None  # where its part of the log begins and ends
    started: float | None = None  # epoch seconds


def recover(spool: Spool, msg_id: str, unclaimed: bool, lost: Lost) -> None:
    """Take back an attempt that was lost; `unclaimed` when its start is in no line.

    Unread: nothing is known of the message for now, so nothing is said of it.
    """
    entry = spool.entries[msg_id]
    try:
        message = spool.read(msg_id)
    except Unread:
        raise
    except (BadMessage, NoSuchMessage) as error:
        fail_malformed(spool, msg_id, str(error), lost.lease)
        return
    count = max(message.count, entry.count) + 1
    attempt = max(message.attempt, entry.attempt) + (1 if unclaimed else 0)
    # What was claimed was due then, whatever has become of the clock since.
    due = message.due if unclaimed else min(message.due, spool.clock())
    rule = spool.retry()
    most = retry.most_tries(rule, message.max_count)
    over = count >= most
    if not over and rule is not None and retry.covers(rule, lost.cause):
        due = spool.clock() + retry.wait(rule, count - 1, msg_id, attempt)
    losses = message.lost_attempts + 1
    message = message.with_(count=count, lost_attempts=losses, attempt=attempt, due=due)
    facts: Facts = {
        "cause": Cause.CRASH_LIMIT if over else lost.cause,
        "outcome": "err" if over else "retry",
        "text": wording.lost(losses, count) if over else lost.text,
    }
    if rule is not None:
        facts["tries"] = most
    if lost.log is not None or (size := spool.log_size(msg_id)) > 0:
        facts["log"] = lost.log or [None, size]
    if lost.started is not None:
        facts["started"] = lost.started
    _log.warning(
        "an attempt was lost; %s: %s",
        "RQ moves the message to err" if over else "RQ runs the message again",
        fields(msg_id=msg_id, attempt=attempt, count=count, max=most),
    )
    event = Event.FAIL if over else Event.RECOVER
    more: More = spool.owed_by(message, facts) if over else {}
    if lost.lease is not None:
        more["lease"] = lost.lease
    spool.fire(msg_id, event, Role.QUEUE, message=message, facts=facts, **more)
