"""How the target of a request may be spelled: one way, so that who guards a path and who
routes it can never read it differently."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

SPELLING = (
    "The target of a request begins with exactly one slash, and has no empty part, no "
    "dots for a directory, no backslash, no encoded slash and no control characters."
)


def is_plain(raw: bytes) -> bool:
    """Return whether the path of a target, as it came, is spelled plainly.

    >>> [is_plain(raw) for raw in (b"/q/mail", b"/", b"/q/a%20b.txt", b"/q/a/")]
    [True, True, True, True]
    >>> [is_plain(raw) for raw in (b"//q", b"q.json", b"/q/../x", b"/%2fq", b"*", b"")]
    [False, False, False, False, False, False]
    """
    path = unquote_to_bytes(raw)
    if not raw.startswith(b"/") or raw.count(b"/") != path.count(b"/"):
        return False
    if b"\\" in path or any(byte < 0x20 or byte == 0x7F for byte in path):
        return False
    parts = path.split(b"/")[1:]
    inner = parts[:-1]  # the last may be empty: a slash at the end
    return not (b"" in inner or b"." in parts or b".." in parts)
