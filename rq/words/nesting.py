"""How deep JSON that others send may be nested; reading it, and writing it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import orjson

from rq.errors import BadInput, BadMessage

# What JSON holds. Whoever reads it asks with isinstance for `list` and `dict`; what is
# written may be any Sequence and Mapping.
Json: TypeAlias = (
    bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
)

# What is taken is written again within other JSON.
DEPTH = 246  # lists and objects in each other, in a field of a message
_WRITTEN = 254  # that orjson writes
_AROUND = 4  # levels that a request has around such a field


def check_depth(value: Json, most: int = DEPTH) -> None:
    """TypeError when lists and objects are nested deeper than `most`: orjson finds it
    out quickest, when it is put into as many lists as are not allowed."""
    for _ in range(_WRITTEN - most):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        if "ecursion" not in str(error):
            raise
        raise TypeError(f"it is nested deeper than {most} levels") from None


def as_json(name: str, value: Json) -> str:
    """Return `value` as JSON: it will have to be written again and again, also within
    what tells of its message. BadMessage when it cannot be."""
    try:
        check_depth(value)
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise BadMessage(f"{name} cannot be kept as JSON: {error}") from None


def from_json(data: bytes | str, what: str) -> Json:
    """Return the JSON that somebody has sent; BadInput when `what` is none, or nested
    so deep that it could not be written again.

    >>> from_json(b'{"dest": "mail"}', "it")
    {'dest': 'mail'}
    >>> from_json("[" * 300 + "]" * 300, "the argument")
    Traceback (most recent call last):
    rq.errors.BadInput: the argument is nested deeper than 250 levels
    """
    try:
        value: Json = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{what} is not JSON: {error}") from None
    text = data if isinstance(data, bytes) else data.encode()
    if text.count(b"[") + text.count(b"{") > DEPTH:  # most are not worth a look
        try:
            check_depth(value, DEPTH + _AROUND)
        except TypeError:
            most = DEPTH + _AROUND
            raise BadInput(f"{what} is nested deeper than {most} levels") from None
    return value
