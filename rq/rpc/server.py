"""The server side of a control socket: frames in, replies out, each one guarded.

A bad packet, a silent client, a huge frame or a failing command costs its sender an
error or the connection, never the process that serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable

import orjson

from rq.access.connection_limits import ConnectionLimits
from rq.access.sockets import Asker, Policy
from rq.errors import BadInput, Busy, RQError
from rq.proc.listening import Listener
from rq.rpc import wire

IDLE = 60.0  # seconds that a connection may say nothing
FRAME = 5.0  # seconds from the first byte of a frame to its last
WRITE = 10.0  # seconds for the asker to take a reply
CONNECTIONS = 200
REQUEST_LIMIT = 2 * 1024 * 1024  # bytes
_READ = 256 * 1024

Answer = Callable[[bytes, Asker], Awaitable[object]]

log = logging.getLogger(__name__)


class Server:
    """Serves one listening socket; `answer` gives the JSON value for a payload."""

    def __init__(
        self,
        sock: socket.socket,
        policy: Policy,
        answer: Answer,
        magic: bytes = wire.MAGIC,
    ) -> None:
        self._sock = sock
        self._policy = policy
        self._answer = answer
        self._magic = magic
        self._open: set[asyncio.StreamWriter] = set()
        self._limits = ConnectionLimits(CONNECTIONS)
        self._listener: Listener | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener = Listener(self._sock, loop, self._welcome)

    def close(self) -> None:
        if self._listener:
            self._listener.close()
        for writer in self._open:
            writer.close()

    def _welcome(self, sock: socket.socket) -> None:
        """Serve a connection, if the kernel says whose it is and there is room."""
        try:
            asker = self._policy.asker(sock)
            self._limits.add(asker)
        except RQError as error:
            self._turn_away(sock, error)
            return
        if (excess := self._limits.excess(asker)) is not None:
            self._limits.remove(asker)
            self._turn_away(sock, Busy(f"too many connections ({excess[0]})"))
            return
        task = asyncio.get_running_loop().create_task(self._serve(sock, asker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _turn_away(self, sock: socket.socket, error: RQError) -> None:
        reply = wire.failure(error, with_kind=False)
        with contextlib.suppress(OSError):
            sock.send(wire.frame(orjson.dumps(reply), self._magic))
        sock.close()

    async def _serve(self, sock: socket.socket, asker: Asker) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=sock)
        self._open.add(writer)
        try:
            await self._talk(reader, writer, asker)
        except (OSError, TimeoutError) as error:
            log.debug("a connection ended: %s", error)
        finally:
            self._open.discard(writer)
            writer.close()
            self._limits.remove(asker)

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        asker: Asker,
    ) -> None:
        frames = wire.Frames(self._magic, REQUEST_LIMIT)
        guard = _Guard(self._answer, asker)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + IDLE
        while True:
            async with asyncio.timeout_at(deadline):
                data = await reader.read(_READ)
            if not data:
                return
            was_partial = frames.partial
            try:
                payloads = frames.feed(data)
            except BadInput as error:
                await self._send(writer, guard.failed(error))
                return
            for payload in payloads:
                await self._send(writer, await guard.reply(payload))
            if not frames.partial:
                deadline = loop.time() + IDLE
            elif payloads or not was_partial:
                deadline = loop.time() + FRAME

    async def _send(self, writer: asyncio.StreamWriter, reply: object) -> None:
        writer.write(wire.frame(orjson.dumps(reply), self._magic))
        async with asyncio.timeout(WRITE):
            await writer.drain()


class _Guard:
    """Answers the requests of one connection, whatever goes wrong with them."""

    def __init__(self, answer: Answer, asker: Asker) -> None:
        self._answer = answer
        self._asker = asker
        self._tells_kinds = False

    async def reply(self, payload: bytes) -> object:
        if wire.asks_kinds(payload):
            self._tells_kinds = True
            return ["ok"]
        try:
            return await self._answer(payload, self._asker)
        except RQError as error:
            return self.failed(error)
        except Exception:
            log.exception("command failed: %r", payload[:200])
            text = "the command failed; the log of this process says why"
            return self.failed(RQError(text))

    def failed(self, error: RQError) -> list[str]:
        return wire.failure(error, self._tells_kinds)


def remove(sock: socket.socket) -> None:
    """Close a listening socket; its name is the caller's to remove."""
    with contextlib.suppress(OSError):
        sock.close()
