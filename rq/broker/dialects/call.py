"""A command as it was called, and what all commands read of their arguments. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

from rq.access.roles import Role
from rq.broker.desks.node import Node
from rq.broker.state import ids
from rq.broker.state.bounds import LONGEST_WORD, MOST_MESSAGES, MOST_QUEUES
from rq.broker.state.waiters import Waiter, Waiters, Want
from rq.resp import Failure, Value

_LARGEST = 2**63
_LONGEST_PATTERN = 128  # bytes; no client is served while one is compiled
Word = TypeVar("Word", bytes, int)
Read = TypeVar("Read")  # what words say


class Refusal(Exception):
    """The answer to a command is this error; nothing was changed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(text)


class Blocked:
    """No answer yet: the client waits."""


BLOCKED = Blocked()
SYNTAX = "ERR syntax error"
NO_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."


@dataclass(slots=True)  # not frozen: that takes three times as long to make
class Call:
    """A command of a client; `args` come after its name."""

    node: Node
    client: int
    args: Sequence[bytes]
    now: float  # seconds of the broker's clock
    wall_ms: int  # the time of day
    _read: object = None

    def read(self, reader: Callable[[list[bytes]], Read]) -> Read:
        """Return what the words say, as the one reader of their command has it. They are
        read once, whether for the rights of the client or to be obeyed."""
        read = self._read
        if read is None:
            read = self._read = reader(list(self.args))
        return read  # type: ignore[return-value]

    def job_ids(self, most: int = MOST_MESSAGES) -> list[str]:
        """Return all arguments as ids; one that is none, or too many, refuse all."""
        at_most(most, self.args, "ids")
        parsed = [ids.parsed(arg) for arg in self.args]
        valid = [job_id for job_id in parsed if job_id is not None]
        if len(valid) < len(parsed):
            raise Refusal(ids.BAD.text)
        return valid


def wait_at(waiters: Waiters[Want], waiter: Waiter[Want]) -> Blocked:
    """Let a client wait at queues. Refusal: all clients together wait at too many, and
    the memory they take is not counted."""
    if not waiters.has_room(waiter.queues):
        raise Refusal("ERR clients wait at too many queues: wait at fewer, or later")
    waiters.add(waiter)
    return BLOCKED


Function = Callable[[Call], Value | Blocked]


class Places(NamedTuple):
    """Where the names of queues stand among the words of a command, its name counted as 0:
    the first, the last (-1: to the end), the step."""

    first: int
    last: int
    step: int = 1


QUEUE, QUEUES = Places(1, 1), Places(1, -1)


@dataclass(frozen=True, slots=True)
class Command:
    """What a name does, who may say it, and what its words are.

    Denied by default: a command that writes is for operators unless its row names another
    role. One that does not tell of which queues it is (by `queues`, `named` or `of_jobs`)
    is refused to a user of some queues alone.
    """

    function: Function
    arity: int  # words, its name counted; below 0 the least number
    role: Role | None = None
    writes: bool = False
    grows: bool = False  # refused when memory is short
    queues: Places | None = None
    named: Callable[[Call], Sequence[bytes]] | None = None  # queues, behind options
    of_jobs: bool = False  # its words are ids of jobs
    bodies: slice | None = None  # which of its arguments are bodies

    @property
    def takes_role(self) -> Role:
        """The role that a client needs."""
        return self.role or (Role.OPERATOR if self.writes else Role.VIEWER)

    def takes(self, words: int) -> bool:
        """Whether a command may have so many words, its name counted."""
        return words == self.arity if self.arity >= 0 else words >= -self.arity

    def queues_of(self, call: Call) -> Sequence[bytes] | None:
        """Return the queues that a call names; None: none. Refusal: its words make no
        sense."""
        if self.named is not None:
            return self.named(call)
        if self.queues is None:
            return None
        first, last, _ = self.queues
        return call.args[first - 1 : None if last < 0 else last] or None

    def has_long_word(self, args: Sequence[bytes]) -> bool:
        """Whether a word that is no body is longer than a name or a number may be. What a
        name takes of memory is not counted as bodies are."""
        if not args or max(map(len, args)) <= LONGEST_WORD:
            return False  # as nearly all
        words = list(args)
        if self.bodies is not None:
            del words[self.bodies]
        return any(len(word) > LONGEST_WORD for word in words)


Table = Mapping[bytes, Command]


def whole(data: bytes) -> int | None:
    """Return the number in an argument of 64 bits; None when it is none.

    >>> whole(b"-12"), whole(b""), whole(b" 1"), whole(b"1.5")
    (-12, 0, None, None)
    """
    if not data:
        return 0
    digits = data[1:] if data[:1] in (b"-", b"+") else data
    if not digits.isdigit() or len(digits) > 20:
        return None
    number = int(data)
    return number if -_LARGEST <= number < _LARGEST else None


def decimal(data: bytes) -> float | None:
    """Return the number in an argument that may have a fraction; None when it is none.

    >>> decimal(b"-1.5"), decimal(b"1e3"), decimal(b"1_0"), decimal(b" 1"), decimal(b"inf")
    (-1.5, 1000.0, None, None, None)
    """
    if data.strip() != data or b"_" in data:  # which Python would take
        return None
    try:
        number = float(data)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def at_least(least: int, data: bytes, why: str) -> int:
    """Return a number from `least` up; Refusal says `why` it is none."""
    number = whole(data)
    if number is None or number < least:
        raise Refusal(why)
    return number


def at_most(most: int, words: Sequence[Word], what: str) -> Sequence[Word]:
    """Return the words; Refusal says that there are too many."""
    if len(words) > most:
        raise Refusal(f"ERR a command takes at most {most} {what}: send several")
    return words


def queues_in(words: Sequence[bytes]) -> list[bytes]:
    """Return the names of queues that a command goes over."""
    return list(at_most(MOST_QUEUES, words, "queues"))


def timeout(data: bytes) -> int:
    """Return how long a client waits, in milliseconds; 0: for ever."""
    number = 0 if data == b"0" else whole(data)  # as most say
    if number is None:
        raise Refusal("ERR timeout is not an integer or out of range")
    if number < 0:
        raise Refusal("ERR timeout is negative")
    return number


def fitting(names: Iterable[str], pattern: bytes) -> set[str]:
    """Return the names that fit a pattern, upper or lower case; Refusal: it is longer
    than a useful one."""
    if len(pattern) > _LONGEST_PATTERN:
        raise Refusal(f"ERR a pattern has at most {_LONGEST_PATTERN} bytes")
    text = pattern.decode(errors="replace").lower()
    return {name for name in names if fnmatchcase(name, text)}


def quoted(word: bytes) -> str:
    r"""Return a word as a person may read it.

    >>> quoted(b'a"\xff\n')
    '"a\\"\\xff\\n"'
    """
    text = word.decode("latin-1").encode("unicode_escape").decode()
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'
