"""What a client of the Redis protocol reads: bytes of RESP2 to values. Pure."""

from __future__ import annotations

from rq.resp import Failure, Status, Value


class Answers:
    """Takes bytes that a server of RESP2 sends, and gives whole answers.

    >>> answers = Answers()
    >>> answers.feed(b"*2\\r\\n$1\\r\\na\\r\\n:1\\r\\n+O")
    >>> answers.next()
    [b'a', 1]
    """

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        """Take bytes that came."""
        self._data += data

    def next(self) -> Value | Missing:
        """Return the next answer; MISSING: more has to come."""
        try:
            value, end = _answer(self._data, 0)
        except _Short:
            return MISSING
        self._data = self._data[end:]
        return value


class Missing:
    """There is no whole answer yet."""


MISSING = Missing()


class _Short(Exception):
    """The bytes end within an answer."""


def _answer(data: bytes, at: int) -> tuple[Value, int]:
    """Return the answer that begins at a place, and where it ends."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise _Short
    kind, rest = data[at : at + 1], data[at + 1 : end]
    if kind in (b"$", b"*"):
        return _sized(data, end + 2, kind, int(rest))
    if kind == b":":
        return int(rest), end + 2
    text = rest.decode(errors="replace")
    return (Failure(text) if kind == b"-" else Status(text)), end + 2


def _sized(data: bytes, at: int, kind: bytes, size: int) -> tuple[Value, int]:
    if size < 0:
        return None, at
    if kind == b"$":
        if len(data) < at + size + 2:
            raise _Short
        return data[at : at + size], at + size + 2
    values: list[Value] = []
    for _ in range(size):
        value, at = _answer(data, at)
        values.append(value)
    return values, at
