"""Where connections come in: accepted, counted, and asked of the kernel once each.

gunicorn's worker serves them. asyncio's own way to accept is not used: short of
descriptors it logs a traceback a hundred times a second, and it takes in everybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from asyncio import sslproto
from dataclasses import dataclass
from typing import Any

from gunicorn.workers.gasgi import ASGIWorker

from rq.access import kernel
from rq.access.tls import Certificate
from rq.web import connection, visitors
from rq.web.connection import Connection
from rq.web.visitors import Visitor, Visitors

log = logging.getLogger(__name__)

_SHUTDOWN = 5.0  # seconds that a client has to end TLS as one should
_TLS_STRANGER = 32 * 1024  # bytes, two records; asyncio has 256 KiB for each client
_AT_ONCE = 100  # connections that are accepted before others get their turn
_PAUSE = 0.2  # seconds until we look again when the machine is short of something
_SAID_AGAIN = 60.0  # seconds
_FAREWELL = 1.0  # seconds that a refused client has to read why
_FAREWELLS = 64  # of these at a time
_GIVING_WAY = 16  # connections that end when there are no descriptors
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
# What accept says of a connection that was lost before, and nothing of the listener.
_NOT_OURS = (errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.ENETDOWN)
_FULL = (
    "RQ's web has as many connections as it takes (web_connections); "
    "try again in a moment.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How many connections are accepted, and with which certificate."""

    connections: int
    certificate: Certificate | None = None  # None: plain HTTP


class Worker(ASGIWorker):
    """gunicorn's ASGI worker behind our doors, one for each listener, which count their
    visitors together; its application has the `rules`."""

    visitors: Visitors

    def _setup_event_loop(self) -> None:
        self.visitors = visitors.for_limit(self.app.rules.connections)
        self.loop = _Loop(self)
        asyncio.set_event_loop(self.loop)


class _Loop(asyncio.SelectorEventLoop):
    """gunicorn names the class of its connections in a call of create_server, and has no
    setting for it: this is where it can be chosen."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    async def create_server(  # type: ignore[override]
        self, factory: object, *, sock: socket.socket, **_: object
    ) -> Door:
        return Door(self._worker, sock)


class Door:
    """Accepts the connections of one listener; gunicorn's worker closes it."""

    def __init__(self, worker: Worker, listener: socket.socket) -> None:
        rules: Rules = worker.app.rules
        self._worker = worker
        self._certificate = rules.certificate
        sslproto.SSLProtocol.max_size = _TLS_STRANGER
        self._loop: asyncio.AbstractEventLoop = worker.loop
        self._listener = listener
        self._visitors = worker.visitors
        self._asks_kernel = not kernel.in_container()
        self._tasks: set[asyncio.Task[None]] = set()
        self._farewells: set[socket.socket] = set()
        self._said: dict[str, float] = {}
        self._reserve: int | None = None
        self._open = True
        self._keep_reserve()
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._listener)
            for sock in self._farewells:
                sock.close()
            if self._reserve is not None:
                os.close(self._reserve)

    async def wait_closed(self) -> None:
        """Nothing: gunicorn waits for the connections by their number."""

    # ---- coming in

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    self._make_do(error)
                    return
            else:
                self._admit(sock, (str(address[0]), int(address[1])))

    def _admit(self, sock: socket.socket, client: tuple[str, int]) -> None:
        sock.setblocking(False)
        uid = kernel.owner_of_peer(sock) if self._asks_kernel else None
        place = visitors.place_of(client[0], uid)
        visitor = Visitor(sock=sock, place=place, uid=uid, client=client)
        if not self._visitors.admit(visitor):
            self._say(
                "full", f"no connection is free for {client[0]}: raise web_connections"
            )
            self._turn_away(sock)
            return
        task = self._loop.create_task(self._serve(visitor))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, visitor: Visitor) -> None:
        """Hand a connection to gunicorn, after the handshake of TLS if there is one."""
        served = Connection(self._worker, self._visitors, visitor)
        secure: dict[str, Any] = {}
        if self._certificate is not None:
            secure["ssl"] = self._certificate.context()
            secure["ssl_handshake_timeout"] = connection.HEAD_TIME
            secure["ssl_shutdown_timeout"] = _SHUTDOWN
        try:
            await self._loop.connect_accepted_socket(
                lambda: served, visitor.sock, **secure
            )
        except OSError as error:
            self._visitors.leave(visitor)
            visitor.sock.close()
            log.debug("a connection was lost: %s", error)

    # ---- not coming in

    def _turn_away(self, sock: socket.socket) -> None:
        """Answer 503 (over plain HTTP) and close. A client that still sends would lose
        the answer if we closed at once: it has a second, if not too many have."""
        self._refuse(sock)
        if len(self._farewells) >= _FAREWELLS:
            self._part(sock)
            return
        self._farewells.add(sock)
        self._loop.call_later(_FAREWELL, self._part, sock)

    def _refuse(self, sock: socket.socket) -> None:
        if self._certificate is not None:
            return
        body = _FULL.encode()
        head = (
            "HTTP/1.1 503 Service Unavailable\r\n"
            "Content-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            sock.send(head.encode() + body)
            sock.shutdown(socket.SHUT_WR)

    def _part(self, sock: socket.socket) -> None:
        """Close, having read what has come: the unread would take our answer back."""
        self._farewells.discard(sock)
        with contextlib.suppress(OSError):
            sock.recv(65536)
        sock.close()

    def _make_do(self, error: OSError) -> None:
        """The machine is short of something: let some go, then look again in a while.

        The listener would be reported as ready all the time, so the loop stops watching it.
        """
        name = errno.errorcode.get(error.errno or 0, "?")
        self._say(
            name,
            f"new connections wait: {error.strerror} ({name}); idle ones are closed",
        )
        if error.errno in _NO_DESCRIPTORS:
            self._turn_one_away()
        self._visitors.end_some(_GIVING_WAY)
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_PAUSE, self._look_again)

    def _turn_one_away(self) -> None:
        """Answer the longest waiting client, with the descriptor kept for this."""
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
            with contextlib.suppress(OSError):
                sock, _ = self._listener.accept()
                sock.setblocking(False)  # a silent client must not block us
                self._refuse(sock)
                self._part(sock)  # now: the descriptor is needed
        self._keep_reserve()

    def _keep_reserve(self) -> None:
        if self._reserve is None:
            with contextlib.suppress(OSError):
                self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _look_again(self) -> None:
        if self._open:
            self._keep_reserve()
            self._loop.add_reader(self._listener, self._accept)

    def _say(self, what: str, text: str) -> None:
        """Log each kind at most once a minute."""
        now = self._loop.time()
        if now >= self._said.get(what, now):
            self._said[what] = now + _SAID_AGAIN
            log.warning("%s", text)
