"""Values of several settings: words, numbers, objects, addresses. Each is checked by a
function that returns it, or raises ValueError."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

T = TypeVar("T")

_WHOLE = re.compile(r"\s*-?\d{1,20}\s*", re.ASCII)


def whole(low: int, high: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{value!r:.60} is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")
        return value

    return check


def one_of(words: Collection[str]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value in words:
            return str(value)
        raise ValueError(f"{value!r:.60} is not one of {', '.join(words)}")

    return check


def either(first: str, second: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value in (first, second):
            return str(value)
        raise ValueError(f"{value!r:.60} is neither {first!r} nor {second!r}")

    return check


def check_names(given: Iterable[str], allowed: Collection[str]) -> None:
    """ValueError for the first name that is not allowed."""
    check = one_of(allowed)
    for name in given:
        check(name)


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return a hint for a name that is not allowed; "" when none is near."""
    close = difflib.get_close_matches(name, list(allowed), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_key(name: str, allowed: Collection[str]) -> None:
    """ValueError for a key of a file that is not allowed."""
    if name not in allowed:
        raise ValueError(f"unknown key {name!r}{did_you_mean(name, allowed)}")


def checked_as(name: str, check: Callable[[object], T], value: object) -> T:
    """Return a checked value; what is wrong with it is told with its name."""
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def json_object(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise ValueError("it is not a JSON object")


def param_numbers(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.60} is not a list of param numbers")
    one_to_four = whole(1, 4)
    given = (number for number in value if number not in ("", None))
    return tuple(sorted({one_to_four(number) for number in given}))


def is_loopback(addr: str) -> bool:
    """Return whether an address to listen on can be reached from this machine alone."""
    if addr.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(addr.strip("[]")).is_loopback
    except ValueError:
        return False
