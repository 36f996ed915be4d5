"""What an owner answers about leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict


class LeaseView(TypedDict, total=False):
    """Who worked on a message under a lease."""

    hash: str  # of the token
    by: str
    seconds: float
    word: str  # digest of what its holder has said of the end
    untaken: int  # how often in a row it was given back because nobody confirmed it
    released: int  # how often in a row its holders gave it back
    until: float  # epoch seconds; of one that is out
    heard: float  # epoch seconds


class LeaseRow(TypedDict):
    """A lease that is out, in `leases`."""

    msg_id: str
    attempt: int
    by: str
    since: float  # epoch seconds
    until: float  # epoch seconds, if nothing more is heard
    seconds: float
    started: bool  # its holder has confirmed it
    text: str  # the last progress
    fraction: float | None


class Elsewhere(TypedDict):
    """Who works on messages of a queue elsewhere."""

    leases: int  # messages that are leased
    max: int  # of these at a time; 0: none are handed out
    workers: int  # that asked in the last two minutes, or hold a lease
    last_heard: float | None  # of any of them; epoch seconds
    since: float  # since when the queue takes note of them; epoch seconds


class RemoteWorker(TypedDict):
    """Who asks for leases."""

    by: str
    host: str
    slots: int | None
    busy: int  # leases that it holds
    there: bool  # it holds some, or has asked in the last two minutes
    last_heard: float | None  # epoch seconds; None: not since the queue's start
    version: str


class LeasesView(TypedDict):
    """`leases`: all that are out, a page at a time, and who asks for them."""

    leases: Sequence[LeaseRow]
    count: int
    max: int
    next: str | None  # cursor of the next page
    workers: Sequence[RemoteWorker]
    pull: Mapping[str, object] | None  # the setting, whole; None: none are handed out


class LeaseFile(TypedDict):
    """An attachment of a leased message."""

    name: str
    size: int  # bytes
    sha256: str


class Grant(TypedDict):
    """A lease, as its holder is told of it once."""

    token: str
    msg_id: str
    full_id: str
    attempt: int
    seconds: float
    message: Mapping[str, object]  # its file `msg`, without attachments
    attachments: Sequence[LeaseFile]
    # What its attempt may use. `fetch` false: its attachments are not fetched.
    limits: Mapping[str, bool | float]
    # Of those that its message has waited for: what a script finds in RQ_AFTER.
    after: NotRequired[Sequence[Mapping[str, object]]]


class GrantsView(TypedDict):
    """`lease`: what was handed out; `why` nothing was; whose end is wanted."""

    leases: Sequence[Grant]
    why: str | None
    base_url: str  # of this RQ, and `env` of its config: scripts are told them
    env: str
    # Of the queue's config: no agent of root starts scripts for a queue that names one.
    user: NotRequired[str]
    cancels: NotRequired[Mapping[str, str]]  # msg_id: why


class WordResult(TypedDict, total=False):
    """What became of a word about a token."""

    token: str
    ok: bool
    kind: str  # of a failure
    text: str
    cancel: str  # why the holder should end it
    seconds: float  # that it goes on
    state: str  # where its message is now
    have: int  # bytes of its log
    sha256: str  # of a file that was handed in
    size: int  # bytes of it
