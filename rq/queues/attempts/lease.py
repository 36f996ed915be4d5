"""A lease: an attempt that is held by a token, not by a process of this queue."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from rq import names
from rq.errors import BadInput
from rq.message.message import Message
from rq.scripts.log_limit import LogLimit
from rq.spool import Held, Spool
from rq.words.nesting import Json

CONFIRM = 10.0  # seconds in which a lease has to be confirmed, at most
_TOKEN = re.compile(r"([0-9.]{1,64})~([1-9][0-9]{0,9})~([0-9a-f]{32})", re.ASCII)


@dataclass(slots=True, kw_only=True, eq=False)
class Lease:
    """A message that a holder elsewhere works on, until it says how that ended.

    Its moments are those of the clock of leases, but for `since`: see `registry`.
    """

    msg_id: str
    held: Held  # what the journal tells of it
    seconds: float  # that were granted last
    until: float
    heard: float  # when its holder was last heard of
    wait_us: int | None
    message: Message | None  # None: it is read again when it is needed
    own_limits: Mapping[str, Json] | None = (
        None  # its message's; None: still to be read
    )
    noted: float  # when the journal was last told that it goes on
    size: int = 0  # bytes of its message, when it was claimed
    queued: float = 0.0  # the moment by which it stands in the order of deadlines
    ends: float | None = None  # its time-out, whatever is renewed
    text: str = ""  # the last progress
    fraction: float | None = None
    logged: int | None = None  # bytes of its log, if it has begun or was looked for
    log_limit: LogLimit | None = None  # once something of its log was given back
    restored: bool = False  # by a start of the queue: its log may have begun before
    hands_in: bool = False  # files, which lie in the folder of its message
    answers: int = 1  # in how many answers its token stands that were not lost
    announced: bool = False  # a long poll has told that it was cancelled

    @property
    def by(self) -> str:
        """Who holds it: the name of a user, and a label of his own."""
        return self.held.by

    @property
    def started(self) -> bool:
        """Whether its holder has said that it has the token."""
        return self.held.started

    @property
    def said_by(self) -> str | None:
        """The person who has cancelled it; None: it was not."""
        return self.held.cancelled_by

    @property
    def cancelled(self) -> str | None:
        """Why its holder should end it; None: there is no reason."""
        return None if self.said_by is None else f"cancelled by {self.said_by}"

    @property
    def deadline(self) -> float:
        """When it is over, if nothing more is heard."""
        if self.started:
            return self.until if self.ends is None else min(self.until, self.ends)
        return min(self.until, self.heard + CONFIRM)


def new_token(msg_id: str, attempt: int) -> str:
    """Return a token that names one attempt for ever, and cannot be guessed."""
    return f"{msg_id}~{attempt}~{secrets.token_hex(16)}"


def digest(token: str) -> str:
    """Return what the journal and lists hold in place of a token."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]


def parse_token(value: object) -> tuple[str, int]:
    """Return the message and the attempt that a token names; BadInput if it is none."""
    match = _TOKEN.fullmatch(value) if isinstance(value, str) else None
    if match is None or not names.is_msg_id(match[1]):
        raise BadInput("token is not one that a lease has: MESSAGE~ATTEMPT~RANDOM")
    return match[1], int(match[2])


def message_of(spool: Spool, lease: Lease) -> Message:
    """Return a leased message. Unread: it is not known for now. BadMessage, NoSuchMessage:
    its file cannot be used."""
    if lease.message is not None:
        return lease.message
    entry = spool.entry(lease.msg_id)
    message = spool.read(lease.msg_id)
    return message.with_(count=entry.count, attempt=entry.attempt, due=entry.due)
