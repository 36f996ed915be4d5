"""Where clients come in: accepted, counted, and named by the kernel."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable

from rq.access.roles import Role
from rq.access.tls import Certificate
from rq.broker import sockets
from rq.broker.connection import Commands, Connection
from rq.broker.door import Door
from rq.broker.sockets import Sockets
from rq.broker.strangers import Strangers
from rq.config.broker import BrokerConfig
from rq.logs import fields
from rq.proc import descriptors
from rq.proc.listening import Listener

_KEEP_ALIVE = 300  # seconds of silence until the kernel asks whether a client is there
_HANDSHAKE = 20.0  # seconds that a client has for it
_TLS_BUFFER = 32 * 1024  # bytes, two records; asyncio has 256 KiB for each client
_SPARE = 256  # descriptors that are for no client, or half of few
_LOG_EVERY = 1.0  # seconds between two lines about handshakes that failed
_FULL = b"-ERR max number of clients reached\r\n"

log = logging.getLogger(__name__)


class Arrivals:
    """Accepts clients, as many as may be."""

    def __init__(
        self,
        commands: Commands,
        door: Door,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerConfig],
    ) -> None:
        """`settings`: those of now."""
        self.connections: dict[int, Connection] = {}
        self.accepted = self.refused = 0  # since the start
        self._commands = commands
        self._door = door
        self._loop = loop
        self._settings = settings
        self.strangers = Strangers(loop, settings, lambda: self.places)
        self._listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed = 0  # handshakes of which the log does not tell yet
        self._tell_at = 0.0
        self._sockets: Sockets | None = None
        if sockets.IS_HERE:
            self._sockets = Sockets(loop, commands.hold_turn, commands.turn_now)

    @property
    def places(self) -> int:
        """How many clients may be there: as many as is set, and never so many that none
        of the descriptors of the process is left for journal, bodies and nodes."""
        limit = descriptors.limit()
        return min(self._settings().maxclients, limit - min(_SPARE, limit // 2))

    def listen(self, sock: socket.socket, certificate: Certificate | None) -> None:
        """Take clients from a listening socket; over TLS with a certificate."""
        if certificate is not None:
            sslproto.SSLProtocol.max_size = _TLS_BUFFER
        accept = functools.partial(self._accept, certificate)
        self._listeners.append(Listener(sock, self._loop, accept))

    def close(self) -> None:
        """Take no more clients."""
        for listener in self._listeners:
            listener.close()
        self.strangers.close()
        if self._sockets is not None:
            self._sockets.close()

    def end(self) -> None:
        """Close the connections of all clients."""
        for connection in list(self.connections.values()):
            if connection.transport is not None:
                connection.transport.close()

    def _accept(self, certificate: Certificate | None, sock: socket.socket) -> None:
        is_local = sock.family == socket.AF_UNIX
        principal = self._door.named(sock)
        # A crowd must not lock out who could send it away.
        is_spared = is_local and principal is not None and principal.may(Role.ADMIN)
        is_full = len(self.connections) >= self.places
        is_stranger = principal is None
        if not is_spared and (
            is_full or (is_stranger and not self.strangers.make_room())
        ):
            self._refuse(sock, says_why=certificate is None)
            return
        self.accepted += 1
        connection = Connection(self.accepted, sock, self._commands)
        connection.principal, connection.is_spared = principal, is_spared
        self.connections[connection.number] = connection
        self.strangers.note(connection)
        if not is_local:
            _keep_alive(sock)
        context = None if certificate is None else certificate.context()
        if self._sockets is not None and context is None:
            self._sockets.serve(sock, connection)
            return
        task = self._loop.create_task(self._serve(connection, sock, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, sock: socket.socket, *, says_why: bool) -> None:
        self.refused += 1
        with contextlib.suppress(OSError):
            if says_why:
                sock.send(_FULL)
        sock.close()

    def lost(self, connection: Connection) -> None:
        """A client is gone."""
        self.connections.pop(connection.number, None)
        self.strangers.lost(connection)

    async def _serve(
        self, connection: Connection, sock: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        """Serve a client, unless it is gone already: then it must not count as one."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=tls,
                ssl_handshake_timeout=_HANDSHAKE if tls else None,
            )
        except OSError as error:
            self._tell_failed(error)
        finally:
            if connection.transport is None:
                sock.close()
                self._commands.lost(connection)

    def _tell_failed(self, error: OSError) -> None:
        """Tell of handshakes that failed: a crowd of strangers would fill the log."""
        self._failed += 1
        now = self._loop.time()
        if now >= self._tell_at:
            why = fields(reason=error, clients=self._failed)
            log.info("a client did not come in: %s", why)
            self._failed, self._tell_at = 0, now + _LOG_EVERY


def _keep_alive(sock: socket.socket) -> None:
    """Send answers at once, and find out who is gone; a client may be by now."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE)
