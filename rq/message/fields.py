"""The fields of a message, one by one: what each may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TypeAlias, TypeGuard, cast

import orjson

from rq import names
from rq.errors import BadInput, BadMessage
from rq.message import after as predecessors
from rq.message import fieldnames, limits
from rq.message.table import (
    BY_NAME,
    KEY_LIMIT,
    LARGEST,
    LATE,
    LATEST,
    LIMITS,
    MOST_URLS,
    OWN,
    ROWS,
    Kept,
    Kind,
    Row,
)
from rq.words import visible
from rq.words.nesting import Json, as_json

ENV_STRING_LIMIT = 128 * 1024  # bytes of NAME=VALUE with its NUL (MAX_ARG_STRLEN)
WHY_LIMIT = 500  # characters of a reason that a person gives

JsonObject = Mapping[str, Json]
Parser: TypeAlias = Callable[[Json], object]  # BadMessage says what is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that travels with a message."""

    sha256: str
    md5: str
    size: int  # bytes

    def to_json(self) -> dict[str, Json]:
        """Return its entry in the file `msg`."""
        return {"sha256": self.sha256, "md5": self.md5, "size": self.size}


def param_text(value: Json) -> str:
    """Return a parameter as its environment variable holds it."""
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def param(name: str, value: Json) -> Json:
    """Return a parameter; BadMessage when no environment variable can hold it."""
    text = value if isinstance(value, str) else as_json(name, value)
    if "\0" in text:
        raise BadMessage(f"{name} holds a NUL byte, which no environment can hold")
    room = ENV_STRING_LIMIT - len(f"RQ_{name.upper()}=") - 1
    if len(text) * 4 > room and len(text.encode()) > room:
        raise BadMessage(
            f"{name} is {len(text.encode())} bytes, an environment variable holds "
            f"{room}; send it as an attachment"
        )
    return value


def due(value: Json) -> float:
    """Return a time in epoch seconds, given as a number or its text."""
    seconds = None
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        seconds = _seconds(value)
    if seconds is None or not 0 <= seconds <= LATEST:
        raise BadMessage(f"due is not epoch seconds: {value!r:.80}")
    return seconds


def _due(value: Json) -> float | None:
    """Return when a message is due; None: at once."""
    return None if value is None or value == "" else due(value)


def _limit(row: Row) -> Callable[[Json], Json]:
    """Return what reads a limit of a message's attempts; None: it sets none."""
    name = row.name
    check = due if name == "deadline" else limits.CHECKS[name]

    def read(value: Json) -> Json:
        if value is None or value == "":
            return None
        try:
            return check(value)
        except (ValueError, BadInput) as error:
            text = str(error).replace("due is not", "it is not")
            raise BadMessage(f"{name}: {text}") from None

    return read


def of_file(fields: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return the fields of a message that was accepted, and those of them that a sender
    had as his own before RQ gave limits their names. What makes no sense in another late
    field is left out."""
    if fields.keys().isdisjoint(LATE):
        return fields, {}
    strange = {name for name in fields.keys() & LATE if not _is_right(name, fields)}
    if not strange:
        return fields, {}
    kept = {name: value for name, value in fields.items() if name not in strange}
    return kept, {name: fields[name] for name in strange & LIMITS}


def _is_right(name: str, fields: JsonObject) -> bool:
    try:
        PARSERS[name](fields[name])
    except BadMessage:
        return False
    return True


def _seconds(value: float | str) -> float | None:
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def priority(value: Json) -> int:
    """Return a priority, given as a number or its digit."""
    return _priority(value)


def priority_in(fields: Mapping[str, object]) -> int:
    """Return the priority in a file, the least for what is none: a message may have been
    accepted when RQ did not know the field."""
    try:
        return _priority(cast("Json", fields.get("priority")))
    except BadMessage:
        return _priority(None)


def _whole(row: Row) -> Callable[[Json], int]:
    """Return what reads a whole number, given as one or as its digits."""
    name, default, low, high = row.name, row.default or 0, row.low, row.high
    top = "up" if high == LARGEST else f"to {high:g}"

    def read(value: Json) -> int:
        if value is None or value == "":
            return default
        number = _of_digits(value) if isinstance(value, str) else value
        if is_whole(number) and low <= number <= high:
            return number
        raise BadMessage(
            f"{name} is not a whole number from {low:g} {top}: {value!r:.80}"
        )

    return read


def _of_digits(text: str) -> int | None:
    digits = text.strip()
    if digits.isascii() and digits.isdigit():
        return int(digits.lstrip("0")[:12] or "0")
    return None


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number from 0 up that a message may hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _text(row: Row) -> Callable[[Json], str | None]:
    """Return what reads a short text that any environment can hold."""
    name = row.name

    def read(value: Json) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise BadMessage(f"{name} is not text: {value!r:.80}")
        if "\0" in value or len(value) > ENV_STRING_LIMIT // 8:
            raise BadMessage(f"{name} is too long or holds a NUL byte")
        return value

    return read


def _flag(row: Row) -> Callable[[Json], bool]:
    return bool


def _texts(row: Row) -> Callable[[Json], tuple[str, ...]]:
    """Return what reads a list of texts."""
    name = row.name

    def read(value: Json) -> tuple[str, ...]:
        listed = value or ()
        if isinstance(listed, list | tuple):
            texts = tuple(item for item in listed if isinstance(item, str))
            if len(texts) == len(listed):
                return texts
        raise BadMessage(f"{name} is not a list of texts: {value!r:.80}")

    return read


def _unique_key(value: Json) -> str | None:
    """Return a text by which equal messages are known."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and len(value) <= KEY_LIMIT and value.isprintable():
        return value
    raise BadMessage(f"unique_key is not 1 to {KEY_LIMIT} printable characters")


def _parent_result(value: Json) -> str | None:
    """Return a text that an environment variable can hold, RQ_ and its name."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadMessage(f"parent_result is not text: {value!r:.80}")
    param("parent_result", value)
    return value


def _urls(value: Json) -> tuple[str, ...]:
    """Return a list of URLs, given as one or as a text with blanks between."""
    if not value:
        return ()
    listed = value.split() if isinstance(value, str) else value
    if isinstance(listed, list | tuple) and all(map(names.is_url, listed)):
        return tuple(listed)
    # Not what it is instead: that may hold a secret, and this sentence goes to logs.
    raise BadMessage("post_run_webhook is not a list of http URLs")


def _after(value: Json) -> tuple[str, ...]:
    """Return the messages that have to end first, as QUEUE/ID."""
    return predecessors.stored(value) if value else ()


def _word_of(words: type[StrEnum], name: str) -> Parser:
    """Return what reads one word of a few; None: the default."""

    def read(value: Json) -> str | None:
        if value is None or value == "":
            return None
        if isinstance(value, str) and value in list(words):
            return value
        raise BadMessage(f"{name} is {value!r:.40}, not one of {', '.join(words)}")

    return read


def _after_end(value: Json) -> JsonObject | None:
    """Return how it was decided that a message may run, which named others."""
    if not value:
        return None
    if not isinstance(value, Mapping):
        raise BadMessage(f"after_end is not {{end, by, at}}: {value!r:.80}")
    return value


def _after_file(value: Json) -> JsonObject | None:
    """Return what names the file of a long list of predecessors."""
    if not value:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("sha256"), str):
        raise BadMessage(f"after_file is not {{ids, sha256}}: {value!r:.80}")
    return value


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


def _attachments(value: Json) -> dict[str, Attachment]:
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


# ---- as a sender may say them


def _few_urls(value: Json) -> tuple[str, ...]:
    urls = _urls(value)
    if len(urls) > MOST_URLS:
        raise BadMessage(
            f"post_run_webhook has {len(urls)} URLs, at most {MOST_URLS} are told"
        )
    return urls


def _new_dest(value: Json) -> str | None:
    """Return where a new message goes; no host can be reached by some URLs."""
    dest = _dest(value)
    try:
        names.check_dest(dest or "")
    except BadInput as error:
        raise BadMessage(f"dest: {error}") from None
    return dest


def _new_unique_key(value: Json) -> str | None:
    if value == "":
        raise BadMessage(
            "unique_key is empty: say what equal messages have in common, or leave it out"
        )
    return _unique_key(value)


# ---- by their names

_OF_ONE: Mapping[str, Parser] = {
    "due": _due,
    "unique_key": _unique_key,
    "post_run_webhook": _urls,
    "parent_result": _parent_result,
    "held": held,
    "after": _after,
    "after_rule": _word_of(predecessors.Rule, "after_rule"),
    "after_fail": _word_of(predecessors.Fail, "after_fail"),
    "after_end": _after_end,
    "after_file": _after_file,
    "attachments": _attachments,
}
_OF_KIND: Mapping[Kind, Callable[[Row], Parser]] = {
    Kind.TEXT: _text,
    Kind.WHOLE: _whole,
    Kind.FLAG: _flag,
    Kind.LIST: _texts,
}


def _parser(row: Row) -> Parser:
    if row.kept is Kept.PARAM:
        return partial(param, row.name)
    if row.kept is Kept.LIMIT:
        return _limit(row)
    return _OF_ONE[row.name] if row.name in _OF_ONE else _OF_KIND[row.kind](row)


# What reads each field in the file of a message, whose id is the name of its folder.
PARSERS: Mapping[str, Parser] = {
    row.name: _parser(row)
    for row in ROWS
    if row.kept is not Kept.NOT and row.name != "msg_id"
}
# In a request, too, of a message that was accepted elsewhere or before (relay, `new/`,
# copies, rows): its fields are taken as they are, but for those that RQ alone writes.
GIVEN: Mapping[str, Parser] = {
    **{name: parse for name, parse in PARSERS.items() if name not in OWN},
    "post_run_webhook": _few_urls,
    "orig_msg_id": lambda value: PARSERS["orig_msg_id"](value or None),
}
# In the request of a sender for a new message, who is told what would have no effect.
SENT: Mapping[str, Parser] = {
    **GIVEN,
    "dest": _new_dest,
    "unique_key": _new_unique_key,
    "hold": hold,
}
_dest, _priority = _text(BY_NAME["dest"]), _whole(BY_NAME["priority"])


def check_sent(fields: JsonObject) -> None:
    """BadMessage when a sender may not say one of some fields, of a message that is
    edited."""
    fieldnames.check(fields)
    for name in fields.keys() & SENT.keys():
        SENT[name](fields[name])
