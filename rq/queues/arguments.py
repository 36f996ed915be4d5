"""The arguments of commands: each kind, and how it is read.

An argument that is missing, or null, is the default. BadInput says in one sentence what is
wrong with any other that makes no sense.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rq.errors import BadInput
from rq.words.nesting import Json

_DIGITS = re.compile(r"-?\d{1,9}", re.ASCII)

Default = TypeVar("Default")


def whole(
    request: Mapping[str, Json], name: str, default: Default, most: int | None = None
) -> int | Default:
    """Return a whole number from 0 to `most`; None: as large as it likes."""
    value = request.get(name)
    if value is None:
        return default
    number = _number(value)
    if number is None or number < 0 or (most is not None and number > most):
        bound = "from 0 up" if most is None else f"up to {most}"
        raise BadInput(f"{name} is {value!r:.60}, and not a whole number {bound}")
    return number


def limit(request: Mapping[str, Json], default: int, most: int) -> int:
    """Return how many are wanted, also of digits in a text, as the ancestor's askers
    send them; 0, less than that, and more than `most`: `most`. Null is refused."""
    value = request.get("limit", default)
    is_text = isinstance(value, str) and _DIGITS.fullmatch(value) is not None
    number = int(str(value)) if is_text else _number(value)
    if number is None:
        raise BadInput(f"limit is {value!r:.60}, and not a whole number")
    return min(number, most) if number > 0 else most


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def seconds(
    request: Mapping[str, Json], name: str, default: float, low: float, high: float
) -> float:
    """Return a number of seconds between `low` and `high`."""
    value = request.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{name} is {value!r:.60}, and not a number of seconds")
    if not low <= value <= high:
        raise BadInput(f"{name} is {value}, and not between {low:g} and {high:g}")
    return float(value)


def visible(request: Mapping[str, Json], name: str, most: int) -> str:
    """Return a text of at most `most` characters, all of which can be seen; "": none."""
    value = request.get(name)
    if value is None:
        return ""
    if isinstance(value, str) and value.isprintable() and len(value) <= most:
        return value
    raise BadInput(f"{name} is not a text of at most {most} visible characters")


def listed(request: Mapping[str, Json], name: str, most: int) -> Sequence[Json]:
    """Return a list of 1 to `most`; there is no default."""
    value = request.get(name)
    if isinstance(value, list) and 0 < len(value) <= most:
        return value
    raise BadInput(f"{name} is not a list of 1 to {most}")


def token(value: Json) -> str:
    """Return a token that a client names; whether it is one is not known."""
    if isinstance(value, str):
        return value
    raise BadInput(f"token is {value!r:.60}, and not a text")
