"""The fields of a message, one by one: what each may hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard, cast

import orjson

from rq import names, visible
from rq.errors import BadInput, BadMessage
from rq.message import fieldnames, limits
from rq.message.rank import LEAST, MOST
from rq.nesting import Json, check_depth

ENV_STRING_LIMIT = 128 * 1024  # bytes of NAME=VALUE with its NUL (MAX_ARG_STRLEN)
WHY_LIMIT = 500  # characters of a reason that a person gives
KEY_LIMIT = 200  # characters of a unique key
LATEST = 32503680000  # the year 3000, in epoch seconds

JsonObject = Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that travels with a message."""

    sha256: str
    md5: str
    size: int  # bytes

    def to_json(self) -> dict[str, Json]:
        """Return its entry in the file `msg`."""
        return {"sha256": self.sha256, "md5": self.md5, "size": self.size}


def as_json(name: str, value: Json) -> str:
    """Return `value` as JSON: it will have to be written again and again, also within
    what tells of its message."""
    try:
        check_depth(value)
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise BadMessage(f"{name} cannot be kept as JSON: {error}") from None


def param_text(value: Json) -> str:
    """Return a parameter as its environment variable holds it."""
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def check_param(name: str, value: Json) -> None:
    """BadMessage when no environment variable can hold a parameter."""
    text = value if isinstance(value, str) else as_json(name, value)
    if "\0" in text:
        raise BadMessage(f"{name} holds a NUL byte, which no environment can hold")
    room = ENV_STRING_LIMIT - len(f"RQ_{name.upper()}=") - 1
    if len(text) * 4 > room and len(text.encode()) > room:
        raise BadMessage(
            f"{name} is {len(text.encode())} bytes, an environment variable holds "
            f"{room}; send it as an attachment"
        )


def due(value: Json) -> float:
    """Return a time in epoch seconds, given as a number or its text."""
    seconds = None
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        seconds = _seconds(value)
    if seconds is None or not 0 <= seconds <= LATEST:
        raise BadMessage(f"due is not epoch seconds: {value!r:.80}")
    return seconds


def limits_in(fields: JsonObject) -> dict[str, Json]:
    """Return the limits of a message's attempts."""
    own: dict[str, Json] = {}
    for name in fields.keys() & fieldnames.LIMITS:
        value = fields[name]
        if value is None or value == "":
            continue
        try:
            own[name] = due(value) if name == "deadline" else limits.CHECKS[name](value)
        except (ValueError, BadInput) as error:
            text = str(error).replace("due is not", "it is not")
            raise BadMessage(f"{name}: {text}") from None
    return own


def without_strange_limits(fields: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return fields of a message that was accepted, and those of them that no limit can
    have: they were a sender's own before RQ had limits."""
    strange = {}
    for name in fields.keys() & fieldnames.LIMITS:
        try:
            limits_in({name: fields[name]})
        except BadMessage:
            strange[name] = fields[name]
    if not strange:
        return fields, strange
    return {name: fields[name] for name in fields if name not in strange}, strange


def _seconds(value: float | str) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def whole(fields: JsonObject, name: str, default: int) -> int:
    """Return a whole number from 0 up, given as one or as its digits."""
    value = fields.get(name)
    if is_whole(value):
        return value
    if value is None or value == "":
        return default
    digits = value.strip() if isinstance(value, str) else ""
    if digits.isascii() and digits.isdigit():
        value = int(digits.lstrip("0")[:12] or "0")
    if is_whole(value):
        return value
    raise BadMessage(f"{name} is not a whole number from 0 up: {value!r:.80}")


def whole_in(fields: JsonObject, name: str) -> int:
    """Return a number that RQ keeps in a file, 0 for what is none: a sender may have used
    the name when RQ did not know it."""
    value = fields.get(name)
    return value if is_whole(value) else 0


def priority(value: Json) -> int:
    """Return a priority, given as a number or its digit."""
    if value is None or value == "":
        return LEAST
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and len(text) == 1 and text.isascii() and text.isdigit():
        text = int(text)
    if is_whole(text) and LEAST <= text <= MOST:
        return text
    raise BadMessage(
        f"priority is not a whole number from {LEAST} to {MOST}: {value!r:.80}"
    )


def priority_in(fields: Mapping[str, object]) -> int:
    """Return the priority in a file, the least for what is none: a message may have been
    accepted when RQ did not know the field."""
    try:
        return priority(cast("Json", fields.get("priority")))
    except BadMessage:
        return LEAST


def with_a_priority(fields: JsonObject) -> JsonObject:
    """Return the fields of a file with what `priority_in` returns."""
    if "priority" not in fields:
        return fields
    return {**fields, "priority": priority_in(fields)}


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number from 0 up that a message may hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def text(fields: JsonObject, name: str) -> str | None:
    """Return a short text that any environment can hold."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadMessage(f"{name} is not text: {value!r:.80}")
    if "\0" in value or len(value) > ENV_STRING_LIMIT // 8:
        raise BadMessage(f"{name} is too long or holds a NUL byte")
    return value


def unique_key(fields: JsonObject, name: str) -> str | None:
    """Return a text by which equal messages are known."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and len(value) <= KEY_LIMIT and value.isprintable():
        return value
    raise BadMessage(f"{name} is not 1 to {KEY_LIMIT} printable characters")


def variable(fields: JsonObject, name: str) -> str | None:
    """Return a text that an environment variable can hold, RQ_ and its name."""
    value = fields.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadMessage(f"{name} is not text: {value!r:.80}")
    check_param(name, value)
    return value


def texts(fields: JsonObject, name: str) -> tuple[str, ...]:
    """Return a list of texts."""
    value = fields.get(name) or ()
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise BadMessage(f"{name} is not a list of texts: {value!r:.80}")


def urls(value: Json) -> tuple[str, ...]:
    """Return a list of URLs, given as one or as a text with blanks between."""
    if not value:
        return ()
    listed = value.split() if isinstance(value, str) else value
    if isinstance(listed, list | tuple) and all(map(names.is_url, listed)):
        return tuple(listed)
    # Not what it is instead: that may hold a secret, and this sentence goes to logs.
    raise BadMessage("post_run_webhook is not a list of http URLs")


def hold(value: Json) -> str | None:
    """Return why a sender wants a message to be held, "" if he does not say it; None: he
    does not want it."""
    if value is None or isinstance(value, bool):
        return "" if value else None
    if not isinstance(value, str):
        raise BadMessage(f"hold is {value!r:.40}: say true, or a text that says why")
    return why(value, "hold")


def why(value: Json, name: str = "why") -> str:
    """Return a reason that a person gives, in one line."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > WHY_LIMIT:
        raise BadMessage(f"{name} is not a text of at most {WHY_LIMIT} characters")
    return visible.line(" ".join(value.split()))


def held(value: Json) -> JsonObject | None:
    """Return who holds a message, why, and since when."""
    if not value:
        return None
    if not isinstance(value, Mapping):
        raise BadMessage(f"held is not {{by, why, since}}: {value!r:.80}")
    since = value.get("since")
    is_number = isinstance(since, int | float) and not isinstance(since, bool)
    return {
        "by": str(value.get("by") or "")[:WHY_LIMIT],
        "why": str(value.get("why") or "")[:WHY_LIMIT],
        "since": since if is_number else 0.0,
    }


def attachments(value: Json) -> dict[str, Attachment]:
    """Return attachments by their names."""
    if not value:
        return {}
    try:
        files = cast("Mapping[str, Mapping[str, str]]", value)
        return {
            names.attachment(name): Attachment(
                sha256=str(file["sha256"]), md5=str(file["md5"]), size=int(file["size"])
            )
            for name, file in files.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError, BadInput):
        raise BadMessage("attachments is not {name: {sha256, md5, size}}") from None
