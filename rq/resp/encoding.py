"""Answers of the Redis protocol: values to bytes. Pure. Source: spec/resp.md 0."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from rq.resp import Failure, NilArray, Status, Value

_Put = Callable[[bytes], None]
_ANY = "surrogateescape"  # names of files may be bytes that are no UTF-8
# A message as it is handed out: its queue, its id, its body.
_MESSAGE = b"*3\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"


def encode(value: Value, version: int) -> bytes:
    """Return the bytes of an answer in RESP2 or RESP3, as `version` says.

    >>> encode([1, b"a", None, NilArray()], 2)
    b'*4\\r\\n:1\\r\\n$1\\r\\na\\r\\n$-1\\r\\n*-1\\r\\n'
    >>> encode({"proto": 3}, 3)
    b'%1\\r\\n$5\\r\\nproto\\r\\n:3\\r\\n'
    """
    if type(value) is Status:
        return b"+%b\r\n" % _one_line(value.text)
    if type(value) is int:
        return b":%d\r\n" % value
    if type(value) is not list:
        return _encoded(value, version)
    out = [b"*%d\r\n" % len(value)]
    _encode(value, version, out.append)
    return b"".join(out)


def _encode(values: Iterable[Value], version: int, put: _Put) -> None:
    """Put the bytes of values: by their exact types, for that is quickest, and one answer
    may hold thousands."""
    for value in values:
        if type(value) is str:
            data = value.encode("utf-8", _ANY)
            put(b"$%d\r\n%b\r\n" % (len(data), data))
        elif type(value) is bytes:
            put(b"$%d\r\n%b\r\n" % (len(value), value))
        elif type(value) is list:
            if len(value) == 3:
                queue, msg_id, body = value
                if type(queue) is type(body) is bytes and type(msg_id) is str:
                    name = msg_id.encode("utf-8", _ANY)
                    put(
                        _MESSAGE % (len(queue), queue, len(name), name, len(body), body)
                    )
                    continue
            put(b"*%d\r\n" % len(value))
            _encode(value, version, put)
        else:
            put(_encoded(value, version))


def _encoded(value: Value, version: int) -> bytes:
    """Return the bytes of any value."""
    if isinstance(value, str):
        value = value.encode("utf-8", _ANY)
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, Status | Failure | NilArray) or value is None:
        return _line(value, version)
    out: list[bytes] = []
    if isinstance(value, Mapping):
        size, kind = (len(value), b"%") if version == 3 else (2 * len(value), b"*")
        out.append(b"%b%d\r\n" % (kind, size))
        _encode(itertools.chain.from_iterable(value.items()), version, out.append)
    else:
        out.append(b"*%d\r\n" % len(value))
        _encode(value, version, out.append)
    return b"".join(out)


def _line(value: Status | Failure | NilArray | None, version: int) -> bytes:
    if isinstance(value, Status):
        return b"+%b\r\n" % _one_line(value.text)
    if isinstance(value, Failure):
        return b"-%b\r\n" % _one_line(value.text)
    return _nil(value, version)


def _nil(value: NilArray | None, version: int) -> bytes:
    """A client of RESP3 takes one kind of nothing."""
    if version == 3:
        return b"_\r\n"
    return b"$-1\r\n" if value is None else b"*-1\r\n"


def _one_line(text: str) -> bytes:
    return text.replace("\r", " ").replace("\n", " ").encode("utf-8", _ANY)
