"""Asking owners, supervisor and timers: lines that stay open and carry many requests.

Each queue has one line for what it is to accept, which its owner may slow down, and one
for the rest, so that looking never waits behind sending. What takes long, say a copy of
a large file, goes over a line of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import orjson

from rq import client, names, wire
from rq.errors import BadInput, NoSuchQueue, OutcomeUnknown, RQError, Unreachable
from rq.layout import Root
from rq.nesting import Json

Reply: TypeAlias = Sequence[Json]  # ["ok", VALUE] or ["fail", TEXT]

DEADLINE = 30.0  # seconds for a reply
LONG = 3600.0  # of what copies or syncs files
_CREATES = frozenset({"create_message", "prep_message", "single_que", "prepare_txn"})
_SLOW = frozenset(
    {"commit_message", "clone_message", "attach_message", "check", "commit_txn"}
)
# What changes nothing may be asked twice when a line broke under it.
_LOOKS = frozenset(
    {
        "ping",
        "uptime",
        "config",
        "status",
        "detail",
        "get_message",
        "get_message_state",
        "get_message_status",
        "num_messages",
        "messages",
        "list",
        "show_txn",
        "list_txns",
    }
)


class _Broken(OutcomeUnknown):
    """The line broke under a request."""


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
        self._alarm: asyncio.TimerHandle | None = None

    async def connect(self) -> Line:
        """Open the line; Unreachable when nobody answers there."""
        sock = client.connect(self._path, timeout=0)
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

    def ask(self, payload: bytes, deadline: float) -> asyncio.Future[bytes]:
        """Send a request; the future holds its reply."""
        if self._transport is None or self._transport.is_closing():
            raise Unreachable(f"nobody answers at {self._path}")
        data = self._kinds.request() + wire.frame(payload, self._magic)
        self._transport.write(data)
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
        self._fail(_Broken(f"{self._path} hung up without an answer: {client.LOST}"))

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


class Owners:
    """The way to every process that can be asked."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lines: dict[tuple[str, bool], asyncio.Future[Line]] = {}

    async def ask(self, queue: str, command: str, arg: object = b"") -> Reply:
        """Return the whole reply of a queue's owner, as the socket gives it.

        NoSuchQueue; Unreachable: nobody answers, nothing was asked. OutcomeUnknown: it
        was asked and the answer did not come.
        """
        reply: Reply = orjson.loads(await self.ask_raw(queue, command, arg))
        return reply

    async def ask_raw(self, queue: str, command: str, arg: object = b"") -> bytes:
        """As `ask`, but the reply as JSON text."""
        payload = command.encode() + b" " + client.encode_arg(arg)
        path = self._socket(queue)
        try:
            if command in _SLOW:
                return await ask_once(path, payload, deadline=LONG)
            return await self._ask(queue, command, payload)
        except Unreachable as error:
            raise self._why_silent(queue) from error

    async def demand(self, queue: str, command: str, arg: object = b"") -> Json:
        """Return what follows `ok` in the reply; raise what follows `fail`."""
        value: Json = client.demanded(await self.ask(queue, command, arg))
        return value

    async def attach(self, queue: str, request: object, fd: int) -> Reply:
        """Ask for `attach_message` with an open file; return the whole reply."""
        payload = b"attach_message " + client.encode_arg(request)
        line = Line(self._socket(queue))
        try:
            with contextlib.closing(line):
                data = await line.ask_with_file(payload, fd, LONG)
        except Unreachable as error:
            raise self._why_silent(queue) from error
        reply: Reply = orjson.loads(data)
        return reply

    async def supervisor(self, command: str, arg: object = b"") -> Reply:
        """Return the supervisor's whole reply."""
        payload = command.encode() + b" " + client.encode_arg(arg)
        data = await ask_once(self._root.supervisor_socket, payload)
        reply: Reply = orjson.loads(data)
        return reply

    async def timers(self, command: str = "status") -> Json:
        """Return what the timers process answers after `ok`."""
        payload = orjson.dumps([command, None])
        reply = await ask_once(self._root.timers_socket, payload, wire.MAGIC2)
        value: Json = client.demanded(orjson.loads(reply))
        return value

    async def each(
        self, queues: Sequence[str], command: str, arg: object = b""
    ) -> list[Reply | RQError]:
        """Ask many queues at the same time; a reply or the RQError for each."""
        return list(
            await asyncio.gather(*(self._or_error(q, command, arg) for q in queues))
        )

    async def _or_error(self, queue: str, command: str, arg: object) -> Reply | RQError:
        try:
            return await self.ask(queue, command, arg)
        except RQError as error:
            return error

    def close(self) -> None:
        for opening in self._lines.values():
            if opening.done() and not opening.exception():
                opening.result().close()

    # ---- lines

    async def _ask(self, queue: str, command: str, payload: bytes) -> bytes:
        line = await self._line(queue, command in _CREATES)
        try:
            return await line.ask(payload, DEADLINE)
        except _Broken:
            if command not in _LOOKS:
                raise
        line = await self._line(queue, command in _CREATES)
        return await line.ask(payload, DEADLINE)

    async def _line(self, queue: str, creates: bool) -> Line:
        """Return the open line to a queue; concurrent callers share its opening."""
        opening = self._lines.get((queue, creates))
        if opening is not None and (not opening.done() or _is_good(opening)):
            return await asyncio.shield(opening)
        opening = asyncio.ensure_future(Line(self._socket(queue)).connect())
        self._lines[queue, creates] = opening
        opening.add_done_callback(lambda done: self._opened((queue, creates), done))
        return await asyncio.shield(opening)

    def _opened(self, key: tuple[str, bool], opening: asyncio.Future[Line]) -> None:
        """Take an error that nobody may have waited for, and forget what did not open:
        of names that are asked for there is no end."""
        if (opening.cancelled() or opening.exception()) and (
            self._lines.get(key) is opening
        ):
            del self._lines[key]

    def _socket(self, queue: str) -> Path:
        if not names.is_queue_name(queue):
            raise NoSuchQueue(f"there is no queue {queue!r:.80}")
        return self._root.queue(queue).socket

    def _why_silent(self, queue: str) -> RQError:
        if not self._root.queue(queue).config.is_file():
            return NoSuchQueue(f"there is no queue {queue}")
        return Unreachable(
            f"queue {queue} does not answer: its process is not running; "
            f"log/queue-{queue}.log may say why"
        )


def _is_good(opening: asyncio.Future[Line]) -> bool:
    return (
        not opening.cancelled() and not opening.exception() and opening.result().is_open
    )


async def ask_once(
    path: Path, payload: bytes, magic: bytes = wire.MAGIC, deadline: float = DEADLINE
) -> bytes:
    """Ask over a line that is opened and closed for it."""
    line = await Line(path, magic).connect()
    with contextlib.closing(line):
        return await line.ask(payload, deadline)
