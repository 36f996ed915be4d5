"""A line of the journal: one event as checksummed JSON.

`{"crc":"8 hex","g":N,"seq":S,…}\\n`. The checksum covers the journal's id, the
segment's name and every byte after `"crc":"…",`, so that a stale line of another file
never passes for one of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NotRequired, TypedDict
from zlib import crc32

import orjson


class Note(StrEnum):
    """Lines that the journal writes itself; the word `ev` of all others is its user's."""

    OPEN = "open"  # first line of a segment
    GROUP = "group"  # ends a group whose events were all written before
    VOID = "void"  # a number that an earlier RQ counted for an event it never wrote


class Line(TypedDict, total=False):
    """What each line holds when it is read; its user has fields of its own in it."""

    g: int  # the group that was synced together
    seq: int  # counts without gaps
    ev: str
    ts: int  # microseconds since the epoch
    end: int  # 1 in the last line of a group


class Header(TypedDict):
    """The first line of a segment; a field of `JournalDir.kind` says whose it is."""

    g: int
    ev: str
    journal: str
    segment: str
    start: int  # of the process that wrote it: greater than that of the one before
    boot: str
    ts: int
    prev: tuple[str, int, int]  # which segment it follows, its size, its last seq
    made: NotRequired[tuple[int, int | None]]  # which file it was written to
    of: NotRequired[str]  # the journal that it goes on from, when that has another id


def seed(journal: str, segment: str) -> int:
    """Return what the checksums of a segment start from."""
    return crc32(f"{journal}/{segment}\n".encode())


def seed_of(header: Header) -> int:
    """Return what the checksums of the segment with this header start from."""
    return seed(header["journal"], header["segment"])


def body(record: Mapping[str, object]) -> bytes:
    """Return a record as it stands behind the checksum."""
    return orjson.dumps(record)[1:]


def sealed(body: bytes, start: int) -> bytes:
    """Return the whole line of `body`, checksum and newline included."""
    return b'{"crc":"%08x",%b\n' % (crc32(body, start), body)


def group(bodies: list[bytes], g: int, start: int, last: bool) -> bytes:
    """Return lines of the group `g`; if they are its last ones, the last says so
    (`end`)."""
    head = b'"g":%d,' % g
    begun = crc32(head, start)  # the same for all lines
    lines = [
        b'{"crc":"%08x",%b%b\n' % (crc32(body, begun), head, body)
        for body in bodies[:-1]
    ]
    tail = head + bodies[-1]
    lines.append(sealed(tail[:-1] + b',"end":1}' if last else tail, start))
    return b"".join(lines)


def read(line: bytes, start: int) -> Line | None:
    """Return the record in a line without its newline; None if it is not whole."""
    if line[:8] != b'{"crc":"' or line[16:18] != b'",':
        return None
    if line[8:16] != b"%08x" % crc32(line[18:], start):
        return None
    record: Line = orjson.loads(b"{" + line[18:])
    return record


def read_object(data: bytes, start: int) -> Mapping[str, object] | None:
    """Return the object in a file that is one such line; None if it is not whole."""
    return read(data.removesuffix(b"\n"), start)


def peek(line: bytes) -> Mapping[str, object] | None:
    """Return the record in a line whose checksum cannot be known yet (a header)."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None
