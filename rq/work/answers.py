"""What a queue's host answers, as values: checked, for a host may say anything.

A name becomes part of a path here, and a number an amount that is waited or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from rq import names
from rq.errors import BadInput, RQError
from rq.message import after, limits
from rq.message import message as messages
from rq.message.limits import NONE, Limits
from rq.message.message import Message
from rq.words.nesting import Json, from_json
from rq.work import holding
from rq.work.holding import Result

MOST_FILES = 10_000  # attachments of a message
_LARGEST = 2**62  # bytes
_TOKEN = re.compile(
    r"(\d{8}\.\d{4}\.\d{2}\.\d{3}\.\d{1,20})~(\d{1,9})~[0-9a-f]{32}", re.ASCII
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEXT = 2000  # characters of a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An attachment that is to be fetched."""

    name: str
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A message that may be worked on; `seconds` from when it was asked for."""

    token: str
    msg_id: str
    attempt: int
    seconds: float
    message: Message
    files: tuple[File, ...]  # to be fetched
    limits: Limits = NONE
    after: tuple[Mapping[str, Json], ...] = ()  # of those that it has waited for

    @property
    def brings_files(self) -> bool:
        """Whether files come with it, for which it needs a folder."""
        return bool(self.files or self.after)

    @property
    def folder(self) -> str:
        """Its folder's name: the token without its secret."""
        return f"{self.msg_id}~{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a request for leases has brought."""

    sent: float  # when it was asked for, as `holding.now` gives it
    leases: tuple[Lease, ...]
    refused: Mapping[str, str]  # token: why its message cannot be worked on here
    why: str  # no lease
    cancels: Mapping[str, str]  # message: why its work shall end
    base_url: str  # of the queue's RQ; "" when it does not say
    env: str
    user: str = ""  # that the queue's scripts run as there; "": RQ's own


def offer(body: bytes, now: float, sent: float) -> Offer:
    """Return what was leased; BadInput when it is no such answer. `now`: epoch
    seconds."""
    reply = _object(from_json(body, "the answer"))
    leases: list[Lease] = []
    refused: dict[str, str] = {}
    attempts: set[str] = set()
    for entry in _list(reply, "leases"):
        given = _object(entry)
        token = _token(given)
        attempt = token.rpartition("~")[0]
        if attempt in attempts:
            raise BadInput("two leases have one token, or are of one attempt")
        attempts.add(attempt)
        try:
            leases.append(_lease(token, given, now))
        except (RQError, KeyError, TypeError, ValueError) as error:
            refused[token] = f"its worker cannot read the message: {error}"[:_TEXT]
    cancels = reply.get("cancels") or {}
    return Offer(
        sent=sent,
        leases=tuple(leases),
        refused=refused,
        why=holding.text(reply, "why"),
        cancels={str(key): str(why)[:_TEXT] for key, why in _object(cancels).items()},
        base_url=holding.text(reply, "base_url"),
        env=holding.text(reply, "env"),
        user=holding.text(reply, "user"),
    )


def _lease(token: str, given: Mapping[str, Json], now: float) -> Lease:
    msg_id, attempt, _ = token.split("~")
    fields = orjson.dumps(_object(given["message"]))
    bounds = _object(given.get("limits") or {})
    fetches = bounds.get("fetch") is not False
    return Lease(
        token=token,
        msg_id=names.msg_id(msg_id),
        attempt=int(attempt),
        seconds=holding.seconds_of(given["seconds"]),
        message=messages.from_disk(fields, msg_id, now),
        files=_files(given.get("attachments")) if fetches else (),
        limits=limits.from_json(bounds),
        after=_after(given.get("after")),
    )


def _after(value: Json) -> tuple[Mapping[str, Json], ...]:
    if not value:
        return ()
    if not isinstance(value, list) or len(value) > after.MOST:
        raise BadInput("what is told of those that it has waited for is no list")
    return tuple(_object(row) for row in value)


def _files(value: Json) -> tuple[File, ...]:
    if not value:
        return ()
    if not isinstance(value, list) or len(value) > MOST_FILES:
        raise BadInput("its attachments are no list")
    files = tuple(_file(_object(entry)) for entry in value)
    if len({file.name for file in files}) < len(files):
        raise BadInput("two of its attachments have one name")
    return files


def _file(given: Mapping[str, Json]) -> File:
    name, size, sha256 = names.attachment(given["name"]), given["size"], given["sha256"]
    if not isinstance(size, int) or not 0 <= size <= _LARGEST:
        raise BadInput(f"attachment {name} has no size")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise BadInput(f"attachment {name} has no digest")
    return File(name=name, size=size, sha256=sha256)


def results(body: bytes, count: int, sent: float) -> list[Result]:
    """Return what became of `count` tokens, in their order; BadInput."""
    entries = _list(_object(from_json(body, "the answer")), "results")
    if len(entries) != count:
        raise BadInput(f"it answers {len(entries)} of {count} words")
    return [holding.result(_object(entry), sent) for entry in entries]


def one_result(body: bytes, sent: float) -> Result:
    """Return what became of the word about a single token; BadInput."""
    return holding.result(_object(from_json(body, "the answer")), sent)


def _object(value: Json) -> Mapping[str, Json]:
    if isinstance(value, Mapping):
        return value
    raise BadInput("the answer is no JSON object")


def _list(given: Mapping[str, Json], name: str) -> list[Json]:
    value = given.get(name)
    if isinstance(value, list):
        return value
    raise BadInput(f"the answer has no list {name!r}")


def _token(given: Mapping[str, Json]) -> str:
    token = given.get("token")
    if isinstance(token, str) and _TOKEN.fullmatch(token):
        return token
    raise BadInput("a lease has no token")
