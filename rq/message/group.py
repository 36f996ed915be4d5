"""Which failures are alike: the group of a cause and of the text that was said.

Two messages fail alike when they failed by the same cause and their texts differ only in
what names the single case: a number, a date, an id, what stands in quotes, a path. These
are masked, and a digest of what remains is the name of the group. It is pure, so an owner
finds the messages of a group by what they themselves say, and the index by what it has read.

A group's name may stand in an address that a person keeps. Who changes a mask gives
groups other names: what stood in such an address then matches nothing, never another group.
"""

from __future__ import annotations

import re
from hashlib import blake2b

LENGTH = 300  # characters of a text that count; what comes behind seldom tells more
_DIGITS = 5  # bytes of the digest
_NUMBER = "#"

# In this order: what a later mask would tear apart comes first.
_MASKS = (
    (
        re.compile(r"\b([a-z][a-z0-9+.-]*://[^/\s'\"<>]+)[^\s'\"<>]*", re.IGNORECASE),
        r"\1/…",
    ),
    (re.compile(r'"[^"\n]*"|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”'), '"…"'),
    (re.compile(r"(?<![\w'])'[^'\n]*'(?!\w)"), '"…"'),
    (re.compile(r"(?<![\w/.…])(?:~|\.{1,2})?(?:/[\w.@%+=,:-]+)+/?"), "/…"),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?"
            r"(?:Z\b|[+-]\d\d:?\d\d\b)?"
        ),
        _NUMBER,
    ),
    (
        re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE),
        _NUMBER,
    ),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), _NUMBER),
    # An id: letters and digits mixed, or hex that is too long to be a word.
    (re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d])\w{8,}\b"), _NUMBER),
    (re.compile(r"\d+(?:[.,:]\d+)*"), _NUMBER),
    (re.compile(r"\s+"), " "),
)


def wording(text: str) -> str:
    """Return what a text has in common with those that say the same of another case.

    >>> wording("cannot open '/srv/a b.csv': line 12")
    'cannot open "…": line #'
    >>> wording("https://shop.example/orders/17 said 503 after 1.5 s")
    'https://shop.example/… said # after # s'
    >>> wording("order-13992 of 2026-01-02T03:04:05Z is not in /var/lib/orders")
    'order-# of # is not in /…'
    """
    text = text[:LENGTH]
    for mask, masked in _MASKS:
        text = mask.sub(masked, text)
    return text.strip()


def group(cause: str, text: str) -> str:
    """Return the name of the group of a failure: its cause, and a digest.

    >>> group("exit", "status 3 in 4 s") == group("exit", "status 30 in 0.2 s")
    True
    >>> group("exit", "status 3") == group("timeout", "status 3")
    False
    """
    return f"{cause}-{blake2b(wording(text).encode(), digest_size=_DIGITS).hexdigest()}"
