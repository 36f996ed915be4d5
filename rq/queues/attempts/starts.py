"""How often a message was started that has ended."""

from __future__ import annotations

from rq.message import Message
from rq.replies import Result


def of_ended(message: Message, status: Result) -> int:
    """Return the starts of a message that has ended, from its file `status` if that
    tells: a start alone does not rewrite its file `msg`."""
    return status.get("attempt", message.attempt)
