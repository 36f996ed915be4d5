"""The message of a lease, as it stands: kept in memory if it is small, else read again."""

from __future__ import annotations

from rq.message import Message
from rq.queues.attempts.lease import Lease
from rq.spool import Spool


def read(spool: Spool, lease: Lease) -> Message:
    """Return a leased message. Unread: it is not known for now. BadMessage, NoSuchMessage:
    its file cannot be used."""
    if lease.message is not None:
        return lease.message
    entry = spool.entry(lease.msg_id)
    message = spool.read(lease.msg_id)
    return message.with_(count=entry.count, attempt=entry.attempt, due=entry.due)
