"""An open connection to an owner: many requests, and their replies in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from pathlib import Path

import orjson

from rq.errors import BadInput, OutcomeUnknown, Unreachable
from rq.rpc import client, wire

DEADLINE = 30.0  # seconds for a reply
_READ = 256 * 1024  # bytes


class Broken(OutcomeUnknown):
    """The line broke under a request."""


class Unsent(Unreachable):
    """The other end had hung up before a request was sent whole: it is not done."""


class Line(asyncio.Protocol):
    """An open connection: requests go out at once, replies come in their order."""

    def __init__(self, path: Path, magic: bytes = wire.MAGIC) -> None:
        self._path = path
        self._magic = magic
        self._frames = wire.Frames(magic, limit=wire.REPLY_LIMIT)
        self._kinds = client.Kinds(magic)
        self._waiting: deque[tuple[float, asyncio.Future[bytes]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._sock: socket.socket | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._socket: tuple[int, int] | None = None  # to which it was opened

    async def connect(self) -> Line:
        """Open the line; Unreachable when nobody answers there."""
        self._socket = _socket_at(self._path)
        sock = self._sock = client.connect(self._path, timeout=0)
        await self._loop.create_unix_connection(lambda: self, sock=sock)
        return self

    async def ask_with_file(self, payload: bytes, fd: int, deadline: float) -> bytes:
        """Open the line with a request that carries an open file; return its reply."""
        sock = client.connect(self._path, timeout=0)
        data = self._kinds.request() + wire.frame(payload, self._magic)
        if socket.send_fds(sock, [data], [fd]) != len(data):
            sock.close()
            raise Unreachable(f"{self._path} did not accept the request as a whole")
        future = self._next_reply(deadline)
        await self._loop.create_unix_connection(lambda: self, sock=sock)
        return await future

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def leads_there(self) -> bool:
        """Whether a new line would not lead to another process: the directory of an owner
        may have been moved, and another one begun in its place."""
        return _socket_at(self._path) in (self._socket, None)

    def ask(self, payload: bytes, deadline: float) -> asyncio.Future[bytes]:
        """Send a request; the future holds its reply."""
        if self._transport is None or self._transport.is_closing():
            raise Unreachable(f"nobody answers at {self._path}")
        data = self._kinds.request() + wire.frame(payload, self._magic)
        self._transport.write(data)
        if self._transport.is_closing():
            raise Unsent(f"{self._path} had hung up")
        return self._next_reply(deadline)

    def _next_reply(self, deadline: float) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting.append((self._loop.time() + deadline, future))
        if self._alarm is None:
            self._alarm = self._loop.call_later(deadline, self._look_at_clock)
        return future

    def close(self) -> None:
        if self._transport:
            self._transport.abort()

    def hang_up(self) -> None:
        """Close, and take first what has come and was not read yet.

        To the other end a reply that has come is one that was told, so it must not be
        dropped unseen. What is sent once reading is shut down fails over there, and what
        was sent before is in the socket: there is no moment in between.
        """
        if self._sock is not None and self.is_open:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)
                while data := self._sock.recv(_READ):
                    self.data_received(data)
        self.close()

    # ---- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            payloads = self._kinds.without(self._frames.feed(data))
        except (BadInput, orjson.JSONDecodeError):
            self.close()
            return
        for payload in payloads:
            if not self._waiting:
                self.close()
                return
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(Broken(f"{self._path} hung up without an answer: {client.LOST}"))

    def _look_at_clock(self) -> None:
        """Hang up when the oldest request is late: those behind it wait for it too."""
        self._alarm = None
        if not self._waiting:
            return
        left = self._waiting[0][0] - self._loop.time()
        if left > 0:
            self._alarm = self._loop.call_later(left, self._look_at_clock)
            return
        self._fail(
            OutcomeUnknown(f"{self._path} did not answer in time: {client.LOST}")
        )
        self.close()

    def _fail(self, error: OutcomeUnknown) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)


def _socket_at(path: Path) -> tuple[int, int] | None:
    """Return which socket has a name; None: there is none."""
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_dev, about.st_ino


async def ask_once(
    path: Path, payload: bytes, magic: bytes = wire.MAGIC, deadline: float = DEADLINE
) -> bytes:
    """Ask over a line that is opened and closed for it."""
    line = await Line(path, magic).connect()
    with contextlib.closing(line):
        return await line.ask(payload, deadline)
