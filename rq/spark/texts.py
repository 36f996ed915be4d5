"""Texts of files in pieces, whatever their lines end with."""

from __future__ import annotations

from collections.abc import Iterator


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
