"""Messages in err that run again: what is left of their last attempts ends first."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Unpack

from rq.errors import Busy, WrongState
from rq.proc import lease_holders
from rq.queues.attempts.attempt import starts_of_ended
from rq.queues.owner.owner import Owner
from rq.spool.record import Facts, More
from rq.words.states import Event, Role, next_state


def hold(owner: Owner, msg_id: str) -> None:
    """Let nobody else send a message round again, until `release`; WrongState or Busy
    unless that can be done now."""
    next_state(owner.spool.state_of(msg_id), Event.REQUEUE, Role.CREATOR)
    if owner.attempts.batch_with(msg_id) is not None:
        raise Busy("the batch that it was in has not ended; ask again when it has")
    if msg_id in owner.retrying:
        # Another search for its old processes would find those of its next attempt.
        raise WrongState("msg is already being retried")
    owner.retrying.add(msg_id)


def release(owner: Owner, ids: Iterable[str]) -> None:
    """End what `hold` began."""
    owner.retrying.difference_update(ids)


async def end_last_attempts(owner: Owner, ids: Collection[str]) -> frozenset[str]:
    """End the processes of the last attempts of messages that are held, which may live
    out of sight of the fast check; return the messages of which one does not end."""
    left = await owner.loop.run_in_executor(
        None,
        lease_holders.end_processes,
        owner.opened.lease_prefix,
        [],
        owner.settings.grace,
        frozenset(ids),
    )
    for process in left:
        os.close(process.pidfd)
    return frozenset(process.msg_id for process in left)


def refuse_left(msg_id: str, left: Collection[str]) -> None:
    """Busy if a process of a message is `left`."""
    if msg_id in left:
        raise Busy(
            "a process of its last attempt still runs; ask again when it has ended"
        )


def again(owner: Owner, msg_id: str, who: str, **more: Unpack[More]) -> None:
    """Let a message run again whose last attempt has ended: the same id, its count at 0."""
    message = owner.spool.read(msg_id)
    began = starts_of_ended(message, owner.spool.status(msg_id))
    renewed = message.with_(
        count=0,
        lost_attempts=0,
        attempt=max(message.attempt, began),
        due=owner.spool.clock(),
    )
    facts: Facts = {
        "cause": "operator",
        "outcome": "requeue",
        "text": f"by {who}",
    }
    owner.uniqueness.check_retry(renewed)
    owner.spool.fire(
        msg_id, Event.REQUEUE, Role.CREATOR, message=renewed, facts=facts, **more
    )
    owner.backlog.put(msg_id, renewed)
