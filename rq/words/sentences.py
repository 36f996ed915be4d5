"""The sentences of failures, as a protocol: how they begin, and of which kind each is.

The programs of the ancestor, and earlier versions of RQ, tell no kind. This is the only
place where the text of a failure is looked at; a reply with a kind does not come here.
"""

from __future__ import annotations

import re

from rq.kinds import Kind

_LACKING = "(?:Too many open files|Cannot allocate memory)"
_FIELD = (
    "(?:src|dest|count|max_count|orig_msg_id|cloned_from|dups?|param[1-4]|_key|key|ttl"
    "|limit|due) (?:is|holds|cannot) "
)
# How a sentence begins, and its kind: the first that fits counts.
_BEGINNINGS: tuple[tuple[str, Kind], ...] = (
    ("msg already commited", Kind.ALREADY_COMMITTED),
    ("cannot find message", Kind.NO_SUCH_MESSAGE),
    ("msg not found", Kind.NO_SUCH_MESSAGE),
    ("no transaction ", Kind.NO_SUCH_MESSAGE),
    ("there is no attachment ", Kind.NO_SUCH_MESSAGE),
    ("there is no queue ", Kind.NO_SUCH_QUEUE),
    ("no such queue", Kind.NO_SUCH_QUEUE),
    ("invalid queue name", Kind.NO_SUCH_QUEUE),
    ("couldn't connect to queue - ", Kind.NO_SUCH_QUEUE),
    (f"msg couldn't be read: {_LACKING}", Kind.CANNOT_READ),
    ("msg couldn't be read", Kind.UNREADABLE),
    ("attachments are not on disk", Kind.NOT_WHOLE),
    ("attachment .{1,300} is not whole", Kind.NOT_WHOLE),
    ("status: ", Kind.DOWN),
    ("503 - Service Unavailable - Operationally Down", Kind.DOWN),
    ("not accepted: ", Kind.CLOSED),
    ("the queue is stopping", Kind.CLOSED),
    ("there is no room", Kind.NO_ROOM),
    ("outcome unknown: ", Kind.OUTCOME_UNKNOWN),
    ("the journal cannot be written", Kind.DISK_FAILED),
    ("its attachments cannot be copied", Kind.DISK_FAILED),
    ("not done, the disk refused it", Kind.DISK_FAILED),
    ("not done, RQ lacks ", Kind.BUSY),
    ("not done, a file of RQ cannot be used", Kind.INTERNAL),
    ("message ", Kind.BUSY),  # … is being worked on, … has N bytes of it
    ("msg is being worked on", Kind.BUSY),
    ("transaction .{1,300} is being committed", Kind.BUSY),
    ("this attachment is just being sent", Kind.BUSY),
    ("another connection is sending this attachment", Kind.BUSY),
    ("too many connections ", Kind.BUSY),
    ("RQ has no descriptors free", Kind.BUSY),
    ("nobody answers for queue ", Kind.UNREACHABLE),
    (r"queue \S{1,100} does not answer", Kind.UNREACHABLE),
    ("the command failed", Kind.INTERNAL),
    ("unknown reason", Kind.INTERNAL),  # the ancestor's word for all that it caught
    ("This address is not among the allowed_ips", Kind.NOT_ALLOWED),
    ("queues (?:are not|cannot be) made here", Kind.NOT_ALLOWED),
    (r"\S{1,64} may ask of ", Kind.OTHER_QUEUE),
    ("Without a login RQ answers only to ", Kind.WRONG_HOST),
    ("cannot clone message in ", Kind.WRONG_STATE),
    ("a message in ", Kind.WRONG_STATE),
    ("already created", Kind.WRONG_STATE),
    ("transaction ", Kind.WRONG_STATE),
    ("msg ", Kind.WRONG_STATE),
    ("the message is ", Kind.TOO_LARGE),
    ("(?:A|The) form ", Kind.BAD_INPUT),
    ("a message is a JSON object", Kind.BAD_INPUT),
    ("attachments? ", Kind.BAD_INPUT),
    ("input missing required", Kind.BAD_INPUT),
    ("lacking '", Kind.BAD_INPUT),
    (r"messages\[", Kind.BAD_INPUT),
    ("not a message id", Kind.BAD_INPUT),
    ("not a regular file", Kind.BAD_INPUT),
    ("post_run_webhook ", Kind.BAD_INPUT),
    ("queue name has invalid characters", Kind.BAD_INPUT),
    ("say X-RQ-SHA256", Kind.BAD_INPUT),
    (_FIELD, Kind.BAD_INPUT),
)
_PATTERNS = tuple((re.compile(start), kind) for start, kind in _BEGINNINGS)


def kind_of(text: str) -> Kind | None:
    """Return of which kind a sentence of RQ or of its ancestor is; None: it is none of
    them.

    >>> kind_of("cannot find message")
    <Kind.NO_SUCH_MESSAGE: 'no_such_message'>
    >>> kind_of("<html>Welcome!")
    """
    return next((kind for start, kind in _PATTERNS if start.match(text)), None)
