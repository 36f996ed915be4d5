"""The Redis protocol: bytes to commands; what answers are made of. Pure.

RESP2 with the limits and errors of Disque's server; RESP3 as modern clients open it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INLINE_LIMIT = 64 * 1024  # bytes of a line
ARGUMENTS_LIMIT = 1024 * 1024  # of one command
WORDS_LIMIT = 16 * 1024  # of one command that is obeyed
BULK_LIMIT = 64 * 1024 * 1024  # bytes of one argument
_SKIPPED_LIMIT = 512 * 1024 * 1024  # of one that is read to its end, and refused
COMMAND_LIMIT = 256 * 1024 * 1024  # bytes of all arguments of one command
_LENGTH_LIMIT = 32  # bytes of a length with its line end
_LINES_AHEAD = 16 * 1024  # that are looked at in one go
_TOO_LONG = f"a body has at most {BULK_LIMIT} bytes"
_TOO_MANY = f"a command has at most {WORDS_LIMIT} words: send several"
_BLANKS = b" \t"
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")  # all but the tab
_TLS = 0x16  # the first byte of a ClientHello: the record type "handshake"
# A page chooses the word for what it asks as well (`fetch(…, {method: "RQ.PUSH"})`), so the
# first line of a request may be a command that there is.
_REQUEST_LINE = re.compile(rb"[ \t]*\S+[ \t]+\S+[ \t]+HTTP/[0-9.]+[ \t]*")

Command = list[bytes]


class Inline(Command):
    """A command that came as a line of text, as a person types it."""


class ProtocolError(Exception):
    """What a client sent is no command; the connection is closed after the answer."""


class SpeaksOther(ProtocolError):
    """A client begins TLS or HTTP, which are not spoken here. Browsers do that for any page,
    and a page chooses much of what they send: the names of servers and protocols, session
    tickets; methods and paths."""


class TooLarge(ProtocolError):
    """An argument of a command is too large, or it has too many. All of it was read, and
    dropped: the connection may go on."""


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
        self._skips = 0  # bytes to come of an argument that is too large
        self._too_large = ""  # why the command is that
        self._ready: list[Command] = []  # read ahead, the next one last
        self._ready_bytes = 0
        self._is_new = False  # bytes came, and nobody has read ahead since
        self._is_over = False  # what came was no command: nothing more is read

    def feed(self, data: bytes | memoryview) -> None:
        """Take bytes that came; none after a protocol error, for what seems to be a
        command there may be a piece of something else."""
        if self._is_over:
            return
        self._data += data
        self._is_new = True

    @property
    def held(self) -> int:
        """How many bytes are kept of commands that nobody has taken, and will come."""
        ahead = self._ready_bytes if self._ready else 0
        return len(self._data) - self._at + self._size + self._skips + ahead

    def next(self) -> Command | None:
        """Return the next whole command; None: more has to come. ProtocolError: what
        comes is none. TooLarge: it was one, and is dropped."""
        if self._is_new and not self._ready and not self._missing:
            self._read_ahead()
        if self._ready:
            return self._ready.pop()
        if not self._data:
            return None
        try:
            while (command := self._next()) is not None:
                if command:
                    return command
        except TooLarge:
            raise
        except ProtocolError:
            self._end()
            raise
        del self._data[: self._at]
        self._at = 0
        return None

    def _end(self) -> None:
        """Read nothing more, and keep nothing."""
        self._is_over = True
        self._data.clear()
        self._command = []
        self._at = self._missing = self._size = self._skips = 0

    def put_back(self, command: Command) -> None:
        """Let a command that was the next be the next again."""
        self._ready_bytes = sum(map(len, command)) + (
            self._ready_bytes if self._ready else 0
        )
        self._ready.append(command)

    def _read_ahead(self) -> None:
        """Read all whole commands at once, by their lines, up to one that is not plain:
        that, and what follows it, is read with care. Once for all bytes that came: what
        a client mixes must not be read again and again."""
        self._is_new = False
        del self._data[: self._at]
        self._at = 0
        lines = bytes(self._data).split(b"\r\n", _LINES_AHEAD)
        at, last = 0, len(lines) - 1
        while at < last and (words_in := _plain_count(lines[at])):
            end = at + 1 + 2 * words_in
            words = lines[at + 2 : end : 2]
            if end > last or lines[at + 1 : end : 2] != _announced(words):
                break
            self._ready.append(words)
            at = end
        if not at:
            return
        self._ready.reverse()
        self._ready_bytes = len(self._data)
        if at < last or lines[last]:
            self._ready_bytes = sum(map(len, lines[:at])) + 2 * at
        del self._data[: self._ready_bytes]

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
            if self._skips and not self._skip():
                return None
            end = self._at + self._bulk
            if len(data) < end + 2:
                return None
            if len(self._command) < WORDS_LIMIT:
                self._command.append(bytes(data[self._at : end]))
            else:
                self._too_large = _TOO_MANY
            self._at = end + 2
            self._bulk = -1
            self._missing -= 1
        command, self._command, self._size = self._command, [], 0
        if self._too_large:
            why, self._too_large = self._too_large, ""
            raise TooLarge(why)
        return command

    def _skip(self) -> bool:
        """Drop what has come of an argument that is too large, but for its line end;
        False: more must come."""
        dropped = min(self._skips, len(self._data) - self._at)
        self._at += dropped
        self._skips -= dropped
        return not self._skips

    def _length(self) -> bool:
        """Read the length of the next argument; False: more must come."""
        line = self._line("too big bulk count string")
        if line is None:
            return False
        if line[:1] != b"$":
            got = line[:1].decode("latin-1") or "\\r"
            raise ProtocolError(f"expected '$', got '{got}'")
        length = _whole(line[1:], _SKIPPED_LIMIT, "bulk")
        if length > BULK_LIMIT:
            self._skips, self._too_large, length = length, _TOO_LONG, 0
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
        if self._data[self._at] == _TLS:
            raise SpeaksOther("TLS is not spoken here")
        end = self._data.find(b"\n", self._at, self._at + INLINE_LIMIT + 1)
        if end < 0:
            if len(self._data) - self._at > INLINE_LIMIT:
                raise ProtocolError("too big inline request")
            return None
        line = bytes(self._data[self._at : end]).removesuffix(b"\r")
        self._at = end + 1
        if _REQUEST_LINE.fullmatch(line):
            raise SpeaksOther("HTTP is not spoken here")
        if _CONTROL.search(line):
            raise ProtocolError("control character in inline request")
        words = Inline(split(line))
        if len(words) > WORDS_LIMIT:
            raise TooLarge(_TOO_MANY)
        return words


_COUNTS = {b"*%d" % count: count for count in range(256)}


def _plain_count(line: bytes) -> int:
    """Return how many arguments a line announces; 0: it has not the usual form."""
    if (count := _COUNTS.get(line)) is not None:  # as of nearly all
        return count
    is_plain = line[:1] == b"*" and len(line) < 8 and line[1:].isdigit()
    return int(line[1:]) if is_plain else 0


_LENGTHS = [b"$%d" % size for size in range(4096)]  # to look one up is quicker


def _announced(words: Command) -> list[bytes]:
    """Return the lines that stand before words: all in C, no frame for each word."""
    try:
        return list(map(_LENGTHS.__getitem__, map(len, words)))
    except IndexError:
        return list(map(b"$%d".__mod__, map(len, words)))


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
