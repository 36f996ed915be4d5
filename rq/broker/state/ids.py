"""The ids of jobs, as clients of Disque read them. Pure.

`D-`, 8 hex of the node, `-`, 24 of base64, `-`, 4 hex: minutes of its TTL, odd when it
is delivered again until a consumer acknowledges it.
"""

from __future__ import annotations

from binascii import b2a_base64

from rq.resp import Failure

RANDOM = 18  # bytes of an id that are drawn
_LENGTH = 40
_MOST_MINUTES = 0xFFFF
BAD = Failure("BADID Invalid Job ID format.")


def job_id(node: str, drawn: bytes, ttl: float, retry: float) -> str:
    """Return the id of a job: `ttl` and `retry` in seconds, `drawn` 18 random bytes.

    >>> job_id("ab" * 20, bytes(18), 86400, 300)
    'D-abababab-AAAAAAAAAAAAAAAAAAAAAAAA-05a1'
    """
    minutes = min(int(ttl) // 60, _MOST_MINUTES)
    minutes = minutes | 1 if retry else minutes & ~1
    text = b2a_base64(drawn, newline=False).decode()
    return f"D-{node[:8]}-{text}-{minutes:04x}"


def parsed(data: bytes) -> str | None:
    """Return the id in what a client sent; None when it has not the form of one."""
    if len(data) != _LENGTH or data[:2] != b"D-":
        return None
    if data[10:11] != b"-" or data[35:36] != b"-":
        return None
    return data.decode(errors="replace")


def life(job: str) -> float:
    """Return for how many seconds an acknowledgement of a job that is not here is kept;
    0: not at all.

    >>> life("D-abababab-AAAAAAAAAAAAAAAAAAAAAAAA-05a1")
    86460.0
    >>> life("D-abababab-AAAAAAAAAAAAAAAAAAAAAAAA-05a0")
    0.0
    """
    try:
        minutes = int(job[36:], 16)
    except ValueError:
        return 0.0
    return minutes * 60.0 if minutes % 2 else 0.0
