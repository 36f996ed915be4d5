"""Texts of files in pieces, whatever their lines end with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?+(?:\r?\n)*+[^\n]+\n")
NOWHERE = 2**62  # bytes: what begins there is in no file


class Lines(Protocol):
    """Whether lines of a kind of files can be read without those before them. They are
    given as they stand in a file, ends and all, without the mark at its beginning."""

    def begin(self, head: bytes) -> int:
        """Return before which byte nothing can be cut, by the first lines of a file."""

    def are_rows(self, lines: bytes) -> bool:
        """Whether no row of these lines may end in another line than it begins in."""


def behind_first(head: bytes) -> int:
    """Return where the first line ends that is not empty.

    >>> behind_first(b"\\r\\n\\na,b\\n1,2\\n")
    7
    """
    first = _FIRST.match(head)
    return first.end() if first else NOWHERE


def is_unix(lines: bytes) -> bool:
    """Whether no line ends with \\r alone, which a reader takes for an end, too."""
    return b"\r" not in lines or lines.count(b"\r") == lines.count(b"\r\n")


def unix(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Give a text whose lines end with \\n, and nothing at its end."""
    held = b""
    for text in texts:
        data = held + text
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if data:
            yield data
    if held:
        yield b"\n"
    yield b""


def utf8(data: bytes) -> bytes:
    """Return a text as UTF-8: what is none becomes U+FFFD."""
    if data.isascii():
        return data
    return data.decode("utf-8", "replace").encode("utf-8")
