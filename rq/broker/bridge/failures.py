"""What clients are told when a queue of RQ refuses, or does not answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rq.broker.dialects.call import Refusal
from rq.errors import RQError
from rq.kinds import Kind

_CLASS: Mapping[Kind, str] = {
    Kind.DOWN: "PAUSED",
    Kind.CLOSED: "PAUSED",
    Kind.NO_ROOM: "MISCONF",
    Kind.DISK_FAILED: "MISCONF",
    Kind.NOT_ALLOWED: "NOPERM",
    Kind.OTHER_QUEUE: "NOPERM",
}


def refusal(queue: str, kind: Kind, text: str) -> Refusal:
    """Return the answer that a command gets when a queue says so; "": one that is not
    named."""
    if kind is Kind.DOWN:
        text = f"queue {queue} is DOWN" if queue else "the queue is DOWN"
    about = "" if queue in text else f"queue {queue}: "
    return Refusal(f"{_CLASS.get(kind, 'ERR')} {about}{text}")


def of_error(queue: str, error: RQError) -> Refusal:
    """Return the answer that a command gets for a failure."""
    return refusal(queue, error.kind, str(error))
