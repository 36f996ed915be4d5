"""How much one command may have at a time, so that no client holds the others up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

MOST_JOBS = 1_000  # of one GETJOB, QPEEK or page of a scan
MOST_MOVED = 2_000  # of one NACK, ENQUEUE or DEQUEUE
MOST_MESSAGES = 5_000  # of all other commands, also of BUSYLOOP
MOST_QUEUES = 1_000  # that one command names
MOST_ROWS = 1_000  # of one answer about the broker itself
MOST_PATTERNS = 16  # of one CONFIG GET
LONGEST_WORD = 1024  # bytes: of a name, and of all else that is no body
MOST_NUMBER = 2**63 - 2**53  # that a node may say: to add to it needs no more bytes
_BYTES = 8 * 1024 * 1024  # of bodies in one answer; the one that passes it is the last

# Where a command has bodies, of its arguments.
BODIES: Mapping[bytes, slice] = {
    b"ADDJOB": slice(1, 2),
    b"QADD": slice(2, 3),
    b"RQ.PUSH": slice(1, None),
}

Item = TypeVar("Item")


def has_long_word(name: bytes, args: Sequence[bytes]) -> bool:
    """Whether a command of a dialect has a word that is longer than one may be: what a
    name takes is kept, and nobody sees it among the bytes of bodies.

    >>> has_long_word(b"QLEN", [bytes(1024)]), has_long_word(b"QLEN", [bytes(1025)])
    (False, True)
    >>> has_long_word(b"QADD", [b"q", b"60", bytes(2000)])
    False
    """
    if not args or max(map(len, args)) <= LONGEST_WORD:
        return False  # as nearly all
    words = list(args)
    if name in BODIES:
        del words[BODIES[name]]
    return any(len(word) > LONGEST_WORD for word in words)


class Room:
    """The room for bodies in one answer."""

    def __init__(self) -> None:
        self.left = _BYTES

    def take(
        self, items: Iterable[Item], count: int, size: Callable[[Item], int]
    ) -> Iterator[Item]:
        """Give up to `count` items, as long as there is room."""
        for item in islice(items, max(0, count)):
            if self.left <= 0:
                return
            self.left -= size(item)
            yield item
