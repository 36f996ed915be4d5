"""The ids by which clients of the broker know messages of RQ's queues. Pure.

All of them are made of the message's own id and its queue, so that who sends and who gets
a message see the same one, whatever broker they ask.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from datetime import UTC, datetime

from rq import names
from rq.errors import BadInput

PREFIX = b"rq:"
_QUEUE_BITS, _TIME_BITS, _NUMBER_BITS = 34, 43, 67  # of the 144 in an id of Disque
_BYTES = 18
_LENGTH = 40
_TTL = "ffff"  # minutes, odd: it is delivered until a client acknowledges it
_MOST_DIGITS = 20


def digest(queue: str) -> int:
    """Return what stands for a queue in an id."""
    whole = hashlib.sha256(queue.encode()).digest()
    return int.from_bytes(whole[:8], "big") >> (64 - _QUEUE_BITS)


def job_id(node: str, queue: int, msg_id: str) -> str:
    """Return the id of a message as clients of Disque see it, `queue` being a digest.

    >>> job_id("ab" * 20, digest("mail"), "20260102.0304.05.006.7")
    'D-abababab-ANjT8Qzb5UxkcAAAAAAAAAAH-ffff'
    """
    millis, number = _numbers(msg_id)
    bits = (queue << _TIME_BITS | millis) << _NUMBER_BITS | number
    text = b64encode(bits.to_bytes(_BYTES, "big")).decode()
    return f"D-{node[:8]}-{text}-{_TTL}"


def parsed(job: bytes) -> tuple[int, str] | None:
    """Return the digest of the queue and the message in an id of Disque; None when it
    cannot be of a message.

    >>> parsed(b"D-abababab-ANjT8Qzb5UxkcAAAAAAAAAAH-ffff") == (
    ...     digest("mail"), "20260102.0304.05.006.7")
    True
    """
    if len(job) != _LENGTH or not job.endswith(f"-{_TTL}".encode()):
        return None
    try:
        bits = int.from_bytes(b64decode(job[11:35], validate=True), "big")
    except ValueError:
        return None
    msg_id = _msg_id(
        bits >> _NUMBER_BITS & (1 << _TIME_BITS) - 1, bits & (1 << _NUMBER_BITS) - 1
    )
    return bits >> _TIME_BITS + _NUMBER_BITS, msg_id


def pair(msg_id: str, between: str) -> str:
    """Return the id of a message as RedisRQ (`-`) and bananaq (`_`) have theirs.

    >>> pair("20260102.0304.05.006.7", "-")
    '1767323045006-7'
    """
    millis, number = _numbers(msg_id)
    return f"{millis}{between}{number}"


def of_pair(text: bytes, between: bytes) -> str | None:
    """Return the message in such an id; None when it cannot be of one.

    >>> of_pair(b"1767323045006-7", b"-")
    '20260102.0304.05.006.7'
    """
    millis, _, number = text.partition(between)
    if not (millis.isdigit() and number.isdigit()):
        return None
    if len(millis) > _MOST_DIGITS or len(number) > _MOST_DIGITS:
        return None
    if int(millis) >> _TIME_BITS:
        return None
    return _msg_id(int(millis), int(number))


def is_sayable(msg_id: str) -> bool:
    """Return whether clients can be told a message's id."""
    try:
        _numbers(msg_id)
    except BadInput:
        return False
    return True


def _numbers(msg_id: str) -> tuple[int, int]:
    """Return the time of a message's id in milliseconds, and its last part. BadInput for
    one that RQ did not give, and that cannot be told from its numbers."""
    millis = round(names.created(msg_id) * 1000)
    number = int(msg_id.rpartition(".")[2])
    if millis >> _TIME_BITS or millis < 0 or _msg_id(millis, number) != msg_id:
        raise BadInput(f"message {msg_id} has an id that clients cannot be told")
    return millis, number


def _msg_id(millis: int, number: int) -> str:
    when = datetime.fromtimestamp(millis // 1000, UTC)
    return f"{when:%Y%m%d.%H%M.%S}.{millis % 1000:03d}.{number}"
