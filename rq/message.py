"""A message as a value, and its JSON on disk and on the wire.

What may be asked for is checked once, by `from_request`; what lies on disk is read
by `from_disk`, which is as strict about types. Unknown fields survive both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from rq import fieldnames, names
from rq.errors import BadInput, BadMessage, TooLarge, Torn
from rq.fieldnames import DROPPED, OWN
from rq.nesting import check_depth

MAX_COUNT = 15
ENV_STRING_LIMIT = 128 * 1024  # bytes of NAME=VALUE with its NUL (MAX_ARG_STRLEN)
MESSAGE_LIMIT = 1024 * 1024 - 4096  # bytes; with its journal line under 1 MiB
PARAMS = fieldnames.PARAMS
URLS_CUT = fieldnames.URLS_CUT
# By these RQ says how a message stands, when it shows one: no sender may say it.
SAID_BY_RQ = frozenset(
    {
        "phase",
        "acknowledged",
        "_txn",
        "_attachments",
        "removed_at",
        "_restored",
        "_silent",
    }
)
MOST_URLS = 20  # each takes the whole story of the end into a line of the journal
_WHOLE_SECONDS_LIMIT = 32503680000  # the year 3000, in epoch seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that travels with a message."""

    sha256: str
    md5: str
    size: int  # bytes

    def to_json(self) -> dict[str, Any]:
        return {"sha256": self.sha256, "md5": self.md5, "size": self.size}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message; `due` is epoch seconds, `count` the retries that were counted."""

    msg_id: str
    dest: str
    due: float
    src: str | None = None
    count: int = 0
    max_count: int = MAX_COUNT
    attempt: int = 0  # starts, of any kind
    params: Mapping[str, Any] = field(default_factory=dict)  # param1 … param4
    post_run_webhook: tuple[str, ...] = ()
    orig_msg_id: str | None = None
    force_remote: bool = False
    cloned_from: str | None = None
    dup: str | None = None
    dups: tuple[str, ...] = ()
    attachments: Mapping[str, Attachment] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object of the file `msg`: absent means not set."""
        shown: dict[str, Any] = {
            "msg_id": self.msg_id,
            "dest": self.dest,
            "due": self.due,
            "count": self.count,
            "max_count": self.max_count,
        }
        shown.update(self.params)
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value:
                shown[name] = value
        if self.attachments:
            shown["attachments"] = {
                name: one.to_json() for name, one in self.attachments.items()
            }
        shown.update(self.extra)
        return shown

    def encode(self) -> bytes:
        """Return the content of the file `msg`."""
        return to_keep(self.to_json())

    def encode_new(self) -> bytes:
        """As `encode`; TooLarge when it is too large to be accepted.

        A message that was accepted may grow (attempts, riders), and still has to end.
        """
        data = self.encode()
        if len(data) > MESSAGE_LIMIT:
            raise too_large(len(data))
        return data

    def with_(self, **changes: Any) -> Message:
        return replace(self, **changes)


def too_large(size: int) -> TooLarge:
    """Return the error for a message of `size` bytes of JSON."""
    return TooLarge(
        f"the message is {size} bytes of JSON, at most {MESSAGE_LIMIT} can be taken; "
        "send large data as an attachment"
    )


_OPTIONAL = (
    "src",
    "attempt",
    "post_run_webhook",
    "orig_msg_id",
    "force_remote",
    "cloned_from",
    "dup",
    "dups",
)
_KEPT = frozenset(
    {"msg_id", "dest", "due", "count", "max_count", "attachments", *PARAMS, *_OPTIONAL}
)


def from_request(
    fields: Mapping[str, Any], msg_id: str, now: float, origin: str
) -> Message:
    """Return the message that a client asks for; BadMessage says what is wrong.

    `origin` is the full id to remember when the message is the first of its chain.
    """
    if not isinstance(fields, Mapping):
        raise BadMessage("a message is a JSON object")
    asked = {name: fields[name] for name in fields if name not in OWN}
    if not asked.get("orig_msg_id"):
        asked["orig_msg_id"] = origin
    message = _from_fields(asked, msg_id, now)
    if (count := len(message.post_run_webhook)) > MOST_URLS:
        raise BadMessage(
            f"post_run_webhook has {count} URLs, at most {MOST_URLS} are told"
        )
    return message


def from_disk(data: bytes, msg_id: str, now: float) -> Message:
    """Return the message in a file `msg`; Torn says what is wrong with it."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Torn(f"msg is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise Torn("msg is not a JSON object")
    try:
        return _with_few_urls(_from_fields(fields, msg_id, now))
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


def _from_fields(fields: Mapping[str, Any], msg_id: str, now: float) -> Message:
    dest = fields.get("dest")
    if dest is None or dest == "":
        raise BadMessage('input missing required "dest" parameter')
    due = fields.get("due")
    params = {n: fields[n] for n in PARAMS if fields.get(n) is not None}
    for name, value in params.items():
        _check_param(name, value)
    return Message(
        msg_id=msg_id,
        dest=_text(fields, "dest") or "",
        due=now if due is None or due == "" else _due(due),
        src=_text(fields, "src"),
        count=_whole(fields, "count", 0),
        max_count=_whole(fields, "max_count", MAX_COUNT),
        attempt=_whole(fields, "attempt", 0),
        params=params,
        post_run_webhook=_urls(fields.get("post_run_webhook")),
        orig_msg_id=_text(fields, "orig_msg_id"),
        force_remote=bool(fields.get("force_remote")),
        cloned_from=_text(fields, "cloned_from"),
        dup=_text(fields, "dup"),
        dups=_texts(fields, "dups"),
        attachments=_attachments(fields.get("attachments")),
        extra={} if fields.keys() <= _KEPT else _extra(fields),
    )


def _extra(fields: Mapping[str, Any]) -> dict[str, Any]:
    unknown = fields.keys() - _KEPT - DROPPED
    for name in unknown:
        _json(name, fields[name])
    return {name: fields[name] for name in fields if name in unknown}


def _json(name: str, value: Any) -> str:
    """Return `value` as JSON: it will have to be written again and again, also within
    what tells of its message."""
    try:
        check_depth(value)
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise BadMessage(f"{name} cannot be kept as JSON: {error}") from None


def param_text(value: Any) -> str:
    """Return a parameter as its environment variable holds it."""
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _check_param(name: str, value: Any) -> None:
    text = value if isinstance(value, str) else _json(name, value)
    if "\0" in text:
        raise BadMessage(f"{name} holds a NUL byte, which no environment can hold")
    room = ENV_STRING_LIMIT - len(f"RQ_{name.upper()}=") - 1
    if len(text) * 4 > room and len(text.encode()) > room:
        raise BadMessage(
            f"{name} is {len(text.encode())} bytes, an environment variable holds "
            f"{room}; send it as an attachment"
        )


def _due(value: Any) -> float:
    try:
        due = float(value) if not isinstance(value, bool | dict | list) else None
    except (TypeError, ValueError, OverflowError):
        due = None
    if due is None or not 0 <= due <= _WHOLE_SECONDS_LIMIT:
        raise BadMessage(f"due is not epoch seconds: {value!r:.80}")
    return due


def _whole(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None or value == "":
        return default
    digits = value.strip() if isinstance(value, str) else ""
    if digits.isascii() and digits.isdigit():
        value = int(digits.lstrip("0")[:12] or "0")
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    raise BadMessage(f"{name} is not a whole number from 0 up: {value!r:.80}")


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadMessage(f"{name} is not text: {value!r:.80}")
    if "\0" in value or len(value) > ENV_STRING_LIMIT // 8:
        raise BadMessage(f"{name} is too long or holds a NUL byte")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name) or ()
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise BadMessage(f"{name} is not a list of texts: {value!r:.80}")


def _urls(value: Any) -> tuple[str, ...]:
    if not value:
        return ()
    found = tuple(value.split()) if isinstance(value, str) else value
    if isinstance(found, list | tuple) and all(map(names.is_url, found)):
        return tuple(found)
    raise BadMessage(f"post_run_webhook is not a list of http URLs: {value!r:.80}")


def _attachments(value: Any) -> dict[str, Attachment]:
    if not value:
        return {}
    try:
        return {
            names.attachment(name): Attachment(
                sha256=str(one["sha256"]), md5=str(one["md5"]), size=int(one["size"])
            )
            for name, one in value.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError, BadInput):
        raise BadMessage("attachments is not {name: {sha256, md5, size}}") from None


def to_keep(value: object) -> bytes:
    """Return a value as JSON that stays in memory for a while: a copy, for orjson leaves
    what it returns, however short, in a buffer of 4 KiB."""
    return b"%b" % orjson.dumps(value)
