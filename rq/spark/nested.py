"""Types that hold others, lists and structs, as Spark writes them: `array<string>`,
``struct<`lat`: double, `lon`: double>``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

_HOLDS = re.compile(r"\s*(array|struct)\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)
_MEMBER = re.compile(
    r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>\w+))(?:\s*:|\s)\s*(?P<kind>.+)", re.DOTALL
)
_DEEPER, _HIGHER = "<(", ">)"


@dataclass(frozen=True, slots=True)
class Held:
    """What a type holds: its members and their types; a list has one, without a name."""

    members: tuple[tuple[str, str], ...]
    is_list: bool


@lru_cache(maxsize=1000)
def held(kind: str) -> Held | None:
    """Return what a type holds; None: it holds nothing, or is none.

    >>> held("struct<a: int, `b c` array<string>>").members
    (('a', 'int'), ('b c', 'array<string>'))
    >>> held("decimal(10,2)")
    """
    parts = _HOLDS.fullmatch(kind)
    if parts is None:
        return None
    if parts[1].lower() == "array":
        return Held((("", parts[2].strip()),), is_list=True)
    members = [_MEMBER.fullmatch(piece) for piece in pieces(parts[2])]
    if None in members:
        return None
    each = [(m["quoted"] or m["plain"], m["kind"].strip()) for m in members if m]
    return Held(tuple(each), is_list=False)


def written(members: Iterable[tuple[str, str]], is_list: bool) -> str:
    """Return a type as `held` reads it, and Spark does."""
    if is_list:
        return f"array<{next(kind for _, kind in members)}>"
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in members)}>"


def pieces(text: str) -> Iterator[str]:
    """Give what commas part in a text that are in no brackets, and in no backquotes.

    >>> list(pieces("a struct<b: int, c: decimal(3,1)>, `d, e` text"))
    ['a struct<b: int, c: decimal(3,1)>', ' `d, e` text']
    """
    begin = depth = 0
    is_quoted = False
    for at, sign in enumerate(text):
        is_quoted ^= sign == "`"
        if not is_quoted:
            depth += (sign in _DEEPER) - (sign in _HIGHER)
            if sign == "," and depth == 0:
                yield text[begin:at]
                begin = at + 1
    yield text[begin:]


def leaves(kind: str) -> Iterator[str]:
    """Give the types that hold no others, of all that a type holds."""
    inner = held(kind)
    if inner is None:
        yield kind
        return
    for _, member in inner.members:
        yield from leaves(member)
