"""Values that nobody would send: for the fuzz tests."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

# Texts that have broken programs before: NUL, lone surrogates, digits of other
# scripts, letters whose upper case is another's, what only looks like a number.
ODD = [
    "", " ", "\0", "\n", "\ud800", "²", "٣", "\u017f", "\ufb01", "\u212a", "-", "--", ".", "..", "/",
    "-1", "+1", "1_0", "0x1", "1e999", "nan", "inf", "9" * 400, "[", "]", "{}", "null",
    "true", "\u202e", "a" * 300, "é" * 150, "http://", "http://[", "http://h:x/q/a",
    "http://h:99999/q/a", "http://[::1]:80/q/a", "q/a/b", "../../etc", "%00", "(?P<",
    "(a+)+$", "$(reboot)", "'", '"',
]  # fmt: skip
NUMBERS = [0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 1e308, -0.0]

odd_text = st.one_of(st.sampled_from(ODD), st.text(max_size=30))
# What json.loads can give: numbers of any size, NaN, lone surrogates.
json_leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.integers(),
    st.floats(),
    odd_text,
)
json_value = st.recursive(
    json_leaf,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(odd_text, inner, max_size=4)
    ),
    max_leaves=12,
)


def near(good: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Give objects that are `good` but for some keys."""
    spoiled = st.dictionaries(
        st.one_of(st.sampled_from(sorted(good)), odd_text), json_value, max_size=3
    )
    gone = st.sets(st.sampled_from(sorted(good)), max_size=2)
    return st.builds(
        lambda new, out: {k: v for k, v in {**good, **new}.items() if k not in out},
        spoiled,
        gone,
    )


def mangled(data: bytes) -> st.SearchStrategy[bytes]:
    """Give `data` as a bad disk or a bad line would: bits flipped, bytes lost, moved,
    doubled, zeroed, cut."""
    place = st.integers(0, max(len(data) - 1, 0))
    step = st.tuples(st.sampled_from(sorted(_STEPS)), place, place)
    return st.lists(step, min_size=1, max_size=4).map(
        lambda steps: _mangle(data, steps)
    )


def _mangle(data: bytes, steps: list[tuple[str, int, int]]) -> bytes:
    for name, one, other in steps:
        first, last = sorted((min(one, len(data)), min(other, len(data))))
        data = _STEPS[name](data, first, last)
    return data


_STEPS = {
    "cut": lambda data, a, b: data[:a],
    "flip": lambda data, a, b: (
        data[:a] + bytes([data[a] ^ 1 << b % 8]) + data[a + 1 :]
        if a < len(data)
        else data
    ),
    "lose": lambda data, a, b: data[:a] + data[b:],
    "repeat": lambda data, a, b: data[:b] + data[a:],
    "zero": lambda data, a, b: data[:a] + bytes(b - a) + data[b:],
    "move": lambda data, a, b: data[:a] + data[b:] + data[a:b],
    "newline": lambda data, a, b: data[:a] + b"\n" + data[a:],
}


def as_json(value: object) -> bytes:
    """Return a value as somebody's editor may have saved it."""
    return json.dumps(value).encode()
