"""The Redis protocol: bytes to commands, values to bytes. Pure.

Source: spec/resp.md 0; RESP3 as modern clients open it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

INLINE_LIMIT = 64 * 1024  # bytes of a line
ARGUMENTS_LIMIT = 1024 * 1024  # of one command
BULK_LIMIT = 64 * 1024 * 1024  # bytes of one argument
COMMAND_LIMIT = 256 * 1024 * 1024  # bytes of all arguments of one command
_LENGTH_LIMIT = 32  # bytes of a length with its line end
_BLANKS = b" \t\r\n\v\f"
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}

Command = list[bytes]


class ProtocolError(Exception):
    """What a client sent is no command; the connection is closed after the answer."""


@dataclass(frozen=True, slots=True)
class Status:
    """A short text in one line, `+OK`."""

    text: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An error with its class first: `ERR syntax error`."""

    text: str


class NilArray:
    """No array, `*-1`: not the same as an empty one."""


OK = Status("OK")
NIL_ARRAY = NilArray()
_Put = Callable[[bytes], None]
Value = (
    None
    | bool
    | int
    | bytes
    | str
    | Status
    | Failure
    | NilArray
    | Sequence["Value"]
    | Mapping[str, "Value"]
)


# ---- commands


class Parser:
    """Takes bytes of a connection as they come and gives whole commands.

    >>> parser = Parser()
    >>> parser.feed(b"PING\\r\\n*2\\r\\n$4\\r\\nQLEN\\r\\n$1\\r\\n")
    >>> parser.next(), parser.next()
    ([b'PING'], None)
    >>> parser.feed(b"q\\r\\n")
    >>> parser.next()
    [b'QLEN', b'q']
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # bytes of it that are read
        self._missing = 0  # arguments of the command that is being read; 0: none is
        self._bulk = -1  # bytes of its next argument; -1: its length comes first
        self._command: Command = []
        self._size = 0  # bytes of the command so far

    def feed(self, data: bytes) -> None:
        """Take bytes that came."""
        self._data += data

    @property
    def held(self) -> int:
        """How many bytes are kept that are no whole command yet."""
        return len(self._data) - self._at + self._size

    def next(self) -> Command | None:
        """Return the next whole command; None: more has to come. ProtocolError: what
        comes is none."""
        while (command := self._next()) is not None:
            if command:
                return command
        del self._data[: self._at]
        self._at = 0
        return None

    def _next(self) -> Command | None:
        """Return the next command, an empty one for a blank line; None: more must come."""
        if not self._missing:
            if self._at >= len(self._data):
                return None
            if self._data[self._at] != ord("*"):
                return self._inline()
            line = self._line("too big mbulk count string")
            if line is None:
                return None
            self._missing = _whole(line[1:], ARGUMENTS_LIMIT, "multibulk")
            if self._missing <= 0:
                self._missing = 0
                return []
        return self._multibulk()

    def _multibulk(self) -> Command | None:
        data = self._data
        while self._missing:
            if self._bulk < 0 and not self._length():
                return None
            end = self._at + self._bulk
            if len(data) < end + 2:
                return None
            self._command.append(bytes(data[self._at : end]))
            self._at = end + 2
            self._bulk = -1
            self._missing -= 1
        command, self._command, self._size = self._command, [], 0
        return command

    def _length(self) -> bool:
        """Read the length of the next argument; False: more must come."""
        line = self._line("too big bulk count string")
        if line is None:
            return False
        if line[:1] != b"$":
            got = line[:1].decode("latin-1") or "\\r"
            raise ProtocolError(f"expected '$', got '{got}'")
        length = _whole(line[1:], BULK_LIMIT, "bulk")
        if length < 0 or self._size + length > COMMAND_LIMIT:
            raise ProtocolError("invalid bulk length")
        self._bulk = length
        self._size += length
        return True

    def _line(self, too_long: str) -> bytes | None:
        """Return the line of a length, without its end; None: more must come."""
        end = self._data.find(b"\r\n", self._at, self._at + INLINE_LIMIT)
        if end < 0:
            if len(self._data) - self._at >= INLINE_LIMIT:
                raise ProtocolError(too_long)
            return None
        line = bytes(self._data[self._at : end])
        self._at = end + 2
        return line

    def _inline(self) -> Command | None:
        end = self._data.find(b"\n", self._at, self._at + INLINE_LIMIT + 1)
        if end < 0:
            if len(self._data) - self._at > INLINE_LIMIT:
                raise ProtocolError("too big inline request")
            return None
        line = bytes(self._data[self._at : end]).removesuffix(b"\r")
        self._at = end + 1
        return split(line)


def _whole(digits: bytes, limit: int, of: str) -> int:
    """Return the number in a length; ProtocolError when it is none, or too large."""
    plain = digits.removeprefix(b"-")
    if not plain.isdigit() or len(digits) > _LENGTH_LIMIT or int(digits) > limit:
        raise ProtocolError(f"invalid {of} length")
    return int(digits)


def split(line: bytes) -> Command:
    r"""Return the words of a line that a person typed, quotes as in a shell.

    >>> split(rb'ADDJOB q "a \x41\n" 0')
    [b'ADDJOB', b'q', b'a A\n', b'0']
    """
    words: Command = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if at >= len(line):
            return words
        word, at = _word(line, at)
        words.append(word)


def _word(line: bytes, at: int) -> tuple[bytes, int]:
    word = bytearray()
    while at < len(line) and line[at] not in _BLANKS:
        quote = line[at : at + 1]
        if quote in (b'"', b"'"):
            at = _quoted(line, at + 1, quote, word)
            if at < len(line) and line[at] not in _BLANKS:
                raise ProtocolError("unbalanced quotes in request")
            break
        word += quote
        at += 1
    return bytes(word), at


def _quoted(line: bytes, at: int, quote: bytes, word: bytearray) -> int:
    """Take what is quoted into `word`; return where it goes on behind the quote."""
    while at < len(line):
        char = line[at : at + 1]
        if char == quote:
            return at + 1
        if char != b"\\":
            word += char
            at += 1
        elif quote == b"'":
            escaped = line[at + 1 : at + 2] == b"'"
            word += b"'" if escaped else b"\\"
            at += 1 + escaped
        else:
            at = _escaped(line, at + 1, word)
    raise ProtocolError("unbalanced quotes in request")


def _escaped(line: bytes, at: int, word: bytearray) -> int:
    code, digits = line[at : at + 1], line[at + 1 : at + 3]
    if code == b"x" and len(digits) == 2:
        try:
            word.append(int(digits, 16))
        except ValueError:
            pass
        else:
            return at + 3
    word += _ESCAPES.get(code, code)
    return at + 1


# ---- answers


def encode(value: Value, version: int) -> bytes:
    """Return the bytes of an answer in RESP2 or RESP3, as `version` says.

    >>> encode([1, b"a", None, NIL_ARRAY], 2)
    b'*4\\r\\n:1\\r\\n$1\\r\\na\\r\\n$-1\\r\\n*-1\\r\\n'
    >>> encode({"proto": 3}, 3)
    b'%1\\r\\n$5\\r\\nproto\\r\\n:3\\r\\n'
    """
    out: list[bytes] = []
    _encode(value, version, out.append)
    return b"".join(out)


def _encode(value: Value, version: int, put: _Put) -> None:
    if isinstance(value, bytes):
        put(b"$%d\r\n%b\r\n" % (len(value), value))
    elif isinstance(value, str):
        _encode(value.encode(errors="surrogateescape"), version, put)
    elif isinstance(value, int):
        put(b":%d\r\n" % value)
    elif isinstance(value, Mapping | Sequence):
        _encode_many(value, version, put)
    else:
        put(_line(value, version))


def _encode_many(
    value: Mapping[str, Value] | Sequence[Value], version: int, put: _Put
) -> None:
    items: Iterable[Value] = value
    size, kind = len(value), b"*"
    if isinstance(value, Mapping):
        items = itertools.chain.from_iterable(value.items())
        size, kind = (size, b"%") if version == 3 else (2 * size, b"*")
    put(b"%b%d\r\n" % (kind, size))
    for item in items:
        _encode(item, version, put)


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
    return text.replace("\r", " ").replace("\n", " ").encode(errors="surrogateescape")


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
