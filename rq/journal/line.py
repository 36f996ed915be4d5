"""A line of the journal: one event as checksummed JSON.

`{"crc":"8 hex","g":N,"seq":S,…}\\n`. The checksum covers the journal's id, the
segment's name and every byte after `"crc":"…",`, so that a stale line of another file
never passes for one of this.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import orjson

LINE_LIMIT = 1024 * 1024  # bytes


def seed(journal: str, segment: str) -> int:
    """Return what the checksums of a segment start from."""
    return crc32(f"{journal}/{segment}\n".encode())


def body(record: dict[str, Any]) -> bytes:
    """Return a record as it stands behind the checksum."""
    return orjson.dumps(record)[1:]


def sealed(body: bytes, start: int) -> bytes:
    """Return the whole line of `body`, checksum and newline included."""
    return b'{"crc":"%08x",%b\n' % (crc32(body, start), body)


def group(bodies: list[bytes], g: int, start: int, last: bool = True) -> bytes:
    """Return lines of the group `g`; if they are its last ones, the last says so
    (`end`)."""
    head = b'"g":%d,' % g
    lines = [sealed(head + body, start) for body in bodies[:-1]]
    tail = head + bodies[-1]
    lines.append(sealed(tail[:-1] + b',"end":1}' if last else tail, start))
    return b"".join(lines)


def read(line: bytes, start: int) -> dict[str, Any] | None:
    """Return the record in a line without its newline; None if it is not whole."""
    if line[:8] != b'{"crc":"' or line[16:18] != b'",':
        return None
    if line[8:16] != b"%08x" % crc32(line[18:], start):
        return None
    record: dict[str, Any] = orjson.loads(b"{" + line[18:])
    return record


def peek(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line whose checksum cannot be known yet (a header)."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
