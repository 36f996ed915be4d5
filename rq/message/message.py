"""A message as a value, and its JSON on disk and on the wire.

What is asked for is read once, by `from_request`: of a new message, which a sender wants,
or of one that was accepted before, as it is. What lies on disk is read by `from_disk`,
which is as strict about types. Unknown fields survive all three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from rq.errors import BadMessage, TooLarge, Torn
from rq.message import fieldnames
from rq.message import fields as checks
from rq.message.after import Fail, Rule, Wait
from rq.message.fields import (
    Attachment,
    JsonObject,
    Parser,
)
from rq.message.table import (
    DROPPED,
    FIELDS,
    KEPT,
    LIMITS,
    MAX_COUNT,
    MOST_URLS,
    OWN,
    PARAMS,
    WRITTEN_IF_SET,
)
from rq.words.nesting import Json

MESSAGE_LIMIT = 1024 * 1024 - 4096  # bytes; with its journal line under 1 MiB
URLS_CUT = fieldnames.URLS_CUT


@dataclass(frozen=True, kw_only=True)  # no slots: `with_` is faster so
class Message:
    """A message; `due` is epoch seconds, `count` the retries that were counted."""

    msg_id: str
    dest: str
    due: float
    src: str | None = None
    count: int = 0
    max_count: int = MAX_COUNT
    attempt: int = 0  # starts, of any kind
    # Those of them whose end is not known: RQ, the machine, its batch or its worker ended.
    # `count` has these, too, among resends, relays, and what the Ruby RQ has counted.
    lost_attempts: int = 0
    priority: int = 0  # 0 to 9; among those that are due 9 runs first
    params: JsonObject = field(default_factory=dict)  # param1 … param4
    unique_key: str | None = None  # what equal messages have in common
    after: tuple[str, ...] = ()  # messages that have to end first: QUEUE/ID
    after_rule: str | None = None
    after_fail: str | None = None
    after_end: JsonObject | None = None  # by what, and when, it was freed of them
    after_file: JsonObject | None = None  # what names the file of a long list
    post_run_webhook: tuple[str, ...] = ()
    by: str | None = None  # who sent it, as the door knew them; None: RQ itself
    orig_msg_id: str | None = None
    force_remote: bool = False
    cloned_from: str | None = None
    parent_result: str | None = None  # of the attempt that sent it on
    dup: str | None = None
    dups: tuple[str, ...] = ()
    held: JsonObject | None = None  # by, why, since: it does not start
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    limits: JsonObject = field(default_factory=dict)  # by their names
    extra: JsonObject = field(default_factory=dict)

    @property
    def wait(self) -> Wait | None:
        """What it waits for, if other messages have to end first."""
        if not self.after or self.after_end is not None:
            return None
        rule, fail = self.after_rule or Rule.DONE, self.after_fail or Fail.HOLD
        return Wait(self.after, Rule(rule), Fail(fail))

    def to_json(self) -> dict[str, Json]:
        """Return the object of the file `msg`: absent means not set."""
        fields: dict[str, Json] = {
            "msg_id": self.msg_id,
            "dest": self.dest,
            "due": self.due,
            "count": self.count,
            "max_count": self.max_count,
        }
        fields.update(self.params)
        values = self.__dict__
        for name in _OPTIONAL:
            if value := values[name]:
                fields[name] = value
        if self.attachments:
            fields["attachments"] = {
                name: file.to_json() for name, file in self.attachments.items()
            }
        if self.limits:
            fields.update(self.limits)
        if self.extra:
            fields.update(self.extra)
        return fields

    def encode(self) -> bytes:
        """Return the content of the file `msg`. A long list of predecessors has a file of
        its own, which it names."""
        fields = self.to_json()
        if self.after_file is not None:
            fields.pop("after", None)
            fields["after_file"] = self.after_file
        return to_keep(fields)

    def encode_new(self) -> bytes:
        """As `encode`; TooLarge when it is too large to be accepted.

        A message that was accepted may grow (attempts, riders), and still has to end.
        """
        data = self.encode()
        if len(data) > MESSAGE_LIMIT:
            raise too_large(len(data))
        return data

    def with_(self, **changes: Any) -> Message:
        """Return a copy with other values in some fields."""
        assert changes.keys() <= self.__dict__.keys(), changes
        other = object.__new__(Message)
        other.__dict__.update(self.__dict__, **changes)
        return other

    def sent_by(self, by: str | None) -> Message:
        """Return it with who has sent it; for who has just made it, and alone holds it: to
        copy it costs as much as to check its fields."""
        self.__dict__["by"] = by
        return self


def too_large(size: int) -> TooLarge:
    """Return the error for a message of `size` bytes of JSON."""
    return TooLarge(
        f"the message is {size} bytes of JSON, at most {MESSAGE_LIMIT} can be taken; "
        "send large data as an attachment"
    )


# Attachments are values of their own, and what names a file is of no use without it; all
# else is written as it is.
_APART = {"attachments", "after_file"}
_OPTIONAL = tuple(name for name in WRITTEN_IF_SET if name not in _APART)
_GROUPS = {"params", "limits", "extra"}  # attributes that hold several fields
assert KEPT - LIMITS - {*PARAMS} == Message.__dataclass_fields__.keys() - _GROUPS, (
    "`Message` has other fields than the table"
)


class _Reading(NamedTuple):
    """How fields are read, by where they come from."""

    parsers: Mapping[str, Parser]
    ours: frozenset[str]  # all others are a sender's own, and stay
    is_new: bool = False  # it was accepted nowhere before


_OF_FILE = _Reading(checks.PARSERS, KEPT | DROPPED)
_GIVEN = _Reading(checks.GIVEN, KEPT | OWN | DROPPED)
_SENT = _Reading(checks.SENT, FIELDS, is_new=True)
assert checks.SENT.keys() <= FIELDS, "a sender's field is refused by its name"


def from_request(
    fields: Json, msg_id: str, now: float, origin: str, *, is_new: bool = False
) -> Message:
    """Return the message that is asked for; BadMessage says what is wrong.

    `origin` is the full id to remember when the message is the first of its chain.
    `is_new`: a sender asks for it, to whom is said what would have no effect. What was
    accepted elsewhere or before is taken as it is. Who sends it, no field says.
    """
    if not isinstance(fields, dict):
        raise BadMessage("a message is a JSON object")
    return _read(fields, _SENT if is_new else _GIVEN, msg_id, now, origin)


def from_disk(data: bytes, msg_id: str, now: float) -> Message:
    """Return the message in a file `msg`; Torn says what is wrong with it."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Torn(f"msg is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Torn("msg is not a JSON object")
    try:
        kept, strange = checks.of_file(fields)
        message = _with_few_urls(_read(kept, _OF_FILE, msg_id, now))
        return message.with_(extra={**message.extra, **strange}) if strange else message
    except BadMessage as error:
        raise Torn(str(error)) from None


def _with_few_urls(message: Message) -> Message:
    """Cut what was accepted when there was no limit, and say so in the message."""
    if len(urls := message.post_run_webhook) <= MOST_URLS:
        return message
    text = (
        f"of {len(urls)} URLs the first {MOST_URLS} are told: no message may have more"
    )
    cut = {**message.extra, URLS_CUT: text}
    return message.with_(post_run_webhook=urls[:MOST_URLS], extra=cut)


def _read(
    fields: JsonObject,
    reading: _Reading,
    msg_id: str,
    now: float,
    origin: str | None = None,
) -> Message:
    if fields.get("dest") in (None, ""):
        raise BadMessage('input missing required "dest" parameter')
    parsers, ours, is_new = reading
    extra = {} if fields.keys() <= ours else fieldnames.own(fields, ours, is_new=is_new)
    # Most messages have few of these: what is absent is not looked at.
    values: dict[str, Any] = {
        name: parsers[name](value)
        for name, value in fields.items()
        if value is not None and name in parsers
    }
    if values.get("due") is None:
        values["due"] = now
    if not values.get("orig_msg_id"):
        values["orig_msg_id"] = origin
    if "hold" in values and (why := values.pop("hold")) is not None:
        by = (values.get("src") or "its sender")[: checks.WHY_LIMIT]
        values["held"] = {
            "by": by,
            "why": why[: checks.WHY_LIMIT],  # shown, it may be longer than it was said
            "since": now,
        }
    return _PLAIN.with_(
        msg_id=msg_id,
        params={name: values.pop(name) for name in PARAMS if name in values},
        limits={} if fields.keys().isdisjoint(LIMITS) else _limits_of(values),
        extra=extra,
        **values,
    )


def _limits_of(values: dict[str, Any]) -> JsonObject:
    """Take the limits that are set out of the values of fields."""
    given = {name: values.pop(name) for name in values.keys() & LIMITS}
    return {name: limit for name, limit in given.items() if limit is not None}


_PLAIN = Message(msg_id="", dest="", due=0.0)  # a copy is made faster than a new one


def to_keep(value: object) -> bytes:
    """Return a value as JSON that stays in memory for a while: a copy, for orjson leaves
    what it returns, however short, in a buffer of 4 KiB."""
    return b"%b" % orjson.dumps(value)
