"""The owner's word: up to which event its journal is durable, as a datagram.

A reader of the open segment cannot tell of the last group whether it was synced. The owner
says so after the answers of a turn, five times a second at most, and waits for nothing: a
socket that is full or not there is tried again after some seconds. What is lost with the
process that reads is asked of the owner instead, once, by that process (`keeper`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from rq.errors import Unreachable
from rq.layout import Root
from rq.rpc.client import near

if TYPE_CHECKING:  # scandir, which sends a word, too, loads neither
    import asyncio

    from rq.journal.segments import Position

PAUSE = 0.2  # seconds between two words
AGAIN = 5.0  # seconds until what could not be sent is sent again
LONGEST = 4096  # bytes
_REBUILD = b'{"rebuild":true}'


class Teller:
    """Says for an owner what is durable."""

    def __init__(
        self,
        root: Root,
        queue: str,
        position: Callable[[], Position],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._path = root.index_socket
        self._queue = queue
        self._position = position
        self._loop = loop
        self._seq = -1  # that was told last
        self._at = 0.0  # no word before (time of the loop)
        self._timer: asyncio.TimerHandle | None = None
        self._socket: socket.socket | None = None

    def tell(self) -> None:
        """Say, now or soon, what is durable; if it was said already, nothing."""
        if self._timer is None and self._position().seq != self._seq:
            if self._loop.time() >= self._at:
                self._say()
            elif self._at - self._loop.time() <= PAUSE:
                self._timer = self._loop.call_at(self._at, self._say)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()

    def _say(self) -> None:
        """Send a word. If that fails the next turn tries again, after a while: there is
        one at least as often as files are looked at."""
        self._timer = None
        position = self._position()
        if send(self._path, _encoded(self._queue, position), self._open()):
            self._seq, pause = position.seq, PAUSE
        else:
            pause = AGAIN
        self._at = self._loop.time() + pause

    def _open(self) -> socket.socket:
        if self._socket is None:
            self._socket = _opened()
        return self._socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A word that came in."""

    queue: str
    journal: str
    segment: str
    seq: int


def _encoded(queue: str, position: Position) -> bytes:
    return orjson.dumps(
        {
            "queue": queue,
            "journal": position.journal,
            "segment": position.segment,
            "offset": position.offset,
            "seq": position.seq,
        }
    )


def decoded(data: bytes) -> Said | None:
    """Return the word in a datagram; None: it says something else."""
    try:
        fields = orjson.loads(data)
        return Said(
            queue=str(fields["queue"]),
            journal=str(fields["journal"]),
            segment=str(fields["segment"]),
            seq=int(fields["seq"]),
        )
    except (ValueError, LookupError, TypeError):
        return None


def asks_rebuild(data: bytes) -> bool:
    return data == _REBUILD


def ask_rebuild(root: Root) -> bool:
    """Ask the process to make the index again; False: none hears."""
    with _opened() as sock:
        return send(root.index_socket, _REBUILD, sock)


def tell_of_config(root: Root, queue: str) -> None:
    """Say that the config of a queue has changed, if a process hears it: it looks at all now
    and then by itself."""
    with _opened() as sock:
        send(root.index_socket, orjson.dumps({"config": queue}), sock)


def config_of(data: bytes) -> str | None:
    """Return the queue whose config has changed, as a datagram says; None: of no other."""
    try:
        return str(orjson.loads(data)["config"])
    except (ValueError, LookupError, TypeError):
        return None


def listen(root: Root) -> socket.socket:
    """Return the socket that words come to; for RQ's own user alone."""
    path = root.index_socket
    path.unlink(missing_ok=True)
    sock = _opened()
    mask = os.umask(0o177)
    try:
        with near(path) as name:
            sock.bind(name)
    finally:
        os.umask(mask)
    return sock


def send(path: Path, data: bytes, sock: socket.socket) -> bool:
    """Send a datagram without waiting; return whether it is on its way."""
    try:
        with near(path) as name:
            sock.sendto(data, name)
    except (OSError, Unreachable):
        return False
    return True


def _opened() -> socket.socket:
    return socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    )
