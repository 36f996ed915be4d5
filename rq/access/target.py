"""How the target of a request may be spelled: one way, so that who guards a path and who
routes it can never read it differently."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

SPELLING = (
    "The target of a request begins with exactly one slash, and has no empty part, no "
    "dots for a directory, no backslash, no encoded slash and no control characters."
)


_TOKEN = re.compile(r"(~[0-9]{1,10}~[0-9a-f]{4})[0-9a-f]{28}", re.ASCII)


def for_logs(path: str) -> str:
    """Return a path as a log may hold it: whoever knows the token of a lease may end the
    lease.

    >>> for_logs("/leases/20261123.0305.58.806.1~2~0123456789abcdef0123456789abcdef/log")
    '/leases/20261123.0305.58.806.1~2~0123…/log'
    """
    return _TOKEN.sub(r"\1…", path)


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
