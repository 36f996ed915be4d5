"""Answers of the Redis protocol: values to bytes. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from rq.resp import Failure, NilArray, Status, Value

_ANY = "surrogateescape"  # names of files may be bytes that are no UTF-8
# The line before a word, by the length of that, and what ends it: to look it up takes a
# third of the time of making it.
_LONGEST = 1024
_HEADS = [b"$%d\r\n" % size for size in range(_LONGEST + 1)]
_END = b"\r\n"


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
    _encode(value, version, out)
    return b"".join(out)


def _encode(values: Iterable[Value], version: int, out: list[bytes]) -> None:
    """Put the bytes of values: by their exact types, for that is quickest, and one answer
    may hold thousands."""
    for value in values:
        if type(value) is str:
            _put(value.encode("utf-8", _ANY), out)
        elif type(value) is bytes:
            _put(value, out)
        elif type(value) is list:
            if len(value) == 3 and _put_message(value, out):
                continue
            out.append(b"*%d\r\n" % len(value))
            _encode(value, version, out)
        else:
            out.append(_encoded(value, version))


def _put(word: bytes, out: list[bytes]) -> None:
    size = len(word)
    out += (_HEADS[size] if size <= _LONGEST else b"$%d\r\n" % size, word, _END)


def _put_message(value: Sequence[Value], out: list[bytes]) -> bool:
    """Put a message as it is handed out; False: it is none, or something in it is long."""
    queue, msg_id, body = value
    if type(queue) is not bytes or type(msg_id) is not str or type(body) is not bytes:
        return False
    name = msg_id.encode("utf-8", _ANY)
    first, second, third = len(queue), len(name), len(body)
    if first > _LONGEST or second > _LONGEST or third > _LONGEST:
        return False
    out += (b"*3\r\n", _HEADS[first], queue, _END, _HEADS[second], name, _END)
    out += (_HEADS[third], body, _END)
    return True


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
        _encode(itertools.chain.from_iterable(value.items()), version, out)
    else:
        out.append(b"*%d\r\n" % len(value))
        _encode(value, version, out)
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
    if "\n" in text or "\r" in text:  # as hardly any
        text = text.replace("\r", " ").replace("\n", " ")
    return text.encode("utf-8", _ANY)
