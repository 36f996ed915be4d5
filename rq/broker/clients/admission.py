"""Which clients are let in: they are accepted while there is room, identified by the kernel
or by a password that they give in time, and identified again after the password changes.

At all times a connection is identified (it has a principal), or is counted in
`Unauthenticated` and obeyed nothing but AUTH, HELLO and QUIT. After a password change no
connection has a principal until it is looked at again: each is, before anything is done
or answered for it, and the idle ones a few at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
import time
from asyncio import sslproto
from collections.abc import Callable, Mapping

from rq.access.roles import Role
from rq.access.tls import Certificate
from rq.broker.clients import sockets
from rq.broker.clients.connection import SLICE, Commands, Connection
from rq.broker.clients.door import Door
from rq.broker.clients.sockets import Sockets
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

_SHARE = 4  # of so many places unauthenticated clients may hold one
_FEWEST = 10  # places that they may hold, however few there are
_PAUSE = 1.0  # seconds between two looks, so that a crowd is ended, and logged, at once

log = logging.getLogger(__name__)


class Admission:
    """Accepts clients, as many as there may be, and identifies them."""

    def __init__(
        self,
        commands: Commands,
        door: Door,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerConfig],
        monitors: Mapping[int, Connection],
    ) -> None:
        """`settings`: those of now; `monitors`: the clients that said MONITOR."""
        self.connections: dict[int, Connection] = {}
        self.accepted = self.refused = 0  # since the start
        self._commands = commands
        self._door = door
        self._loop = loop
        self._settings = settings
        self._monitors = monitors
        self.unauthenticated = Unauthenticated(loop, settings, lambda: self.places)
        self._again = Reauthentication(loop, self._identify_again)
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
        self.unauthenticated.close()
        self._again.close()
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
        # A crowd must not lock out the operator, who could end it.
        is_spared = is_local and principal is not None and principal.may(Role.ADMIN)
        is_full = len(self.connections) >= self.places
        is_unknown = principal is None
        if not is_spared and (
            is_full or (is_unknown and not self.unauthenticated.make_room())
        ):
            self._refuse(sock, says_why=certificate is None)
            return
        self.accepted += 1
        connection = Connection(self.accepted, sock, self._commands)
        connection.principal, connection.is_spared = principal, is_spared
        self.connections[connection.number] = connection
        self.unauthenticated.note(connection)
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
        self.unauthenticated.lost(connection)
        self._again.forget(connection)

    # ---- who they are

    def use_password(self, stored: str, by: Connection) -> None:
        """Use another password from now on. Connections made before must authenticate
        too, except those that the kernel has identified. Those that wait for jobs, or
        watch, are ended, for they would be given what they may not have any more; not
        `by`, which has set the password and waits for the answer to that."""
        self._door.use_password(stored)
        self._again.begin(self.connections)
        self._again.forget(by)
        self._identify(by)
        for watcher in list(self._monitors.values()):
            self._again.settle(watcher)

    def settle(self, connection: Connection) -> None:
        """Identify a client now, if the password was changed since."""
        self._again.settle(connection)

    def _identify(self, connection: Connection) -> None:
        connection.principal = self._door.named(connection.sock)
        self.unauthenticated.note(connection)

    def _identify_again(self, connection: Connection) -> None:
        self._identify(connection)
        hears = connection.waits or connection.number in self._monitors
        if hears and connection.principal is None:
            connection.kill()

    # ---- their sockets

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
        """Tell of handshakes that failed, at most once a second: a crowd would fill the
        log."""
        self._failed += 1
        now = self._loop.time()
        if now >= self._tell_at:
            why = fields(reason=error, clients=self._failed)
            log.info("a client did not come in: %s", why)
            self._failed, self._tell_at = 0, now + _LOG_EVERY


class Unauthenticated:
    """Clients that have not logged in yet. They hold a share of the places, and are ended
    when they take too long, so that clients that can log in find a place."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], BrokerConfig],
        places: Callable[[], int],
    ) -> None:
        """`places`: how many clients there may be, logged in or not."""
        self._loop = loop
        self._places = places
        self._settings = settings
        # With the time of the loop since when each has not been logged in, the longest
        # first.
        self._since: dict[int, tuple[Connection, float]] = {}
        self._look_at: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._since)

    def note(self, connection: Connection) -> None:
        """Count a client that is not logged in; one that is, count no longer."""
        if connection.principal is not None:
            self._since.pop(connection.number, None)
        elif connection.number not in self._since:
            self._since[connection.number] = connection, self._loop.time()
            self._look_later()

    def lost(self, connection: Connection) -> None:
        """A client is gone."""
        self._since.pop(connection.number, None)

    def make_room(self) -> bool:
        """Return whether one more may come. For it the client is ended that has done
        nothing for longest, if there are too many; of those whose passwords are being
        checked none is."""
        if len(self) < max(_FEWEST, self._places() // _SHARE):
            return True
        idle = (each for each, _ in self._since.values() if not each.waits)
        oldest = next(idle, None)
        if oldest is None:
            return False
        oldest.kill()
        return True

    def close(self) -> None:
        """End no more clients."""
        if self._look_at is not None:
            self._look_at.cancel()

    def _look_later(self) -> None:
        """Look again when the time of the first client is over."""
        most = self._settings().login_timeout
        if self._look_at is not None or not self._since or not most:
            return
        _, since = next(iter(self._since.values()))
        wait = max(_PAUSE, since + most - self._loop.time())
        self._look_at = self._loop.call_later(wait, self._look)

    def _look(self) -> None:
        self._look_at = None
        now, ended = self._loop.time(), 0
        for connection, since in list(self._since.values()):
            if since + self._settings().login_timeout > now:
                break
            if connection.waits:  # for the answer to its password
                self.lost(connection)
                self.note(connection)
            else:
                connection.kill()
                ended += 1
        if ended:
            log.info("clients that did not log in are closed: %s", fields(number=ended))
        self._look_later()


class Reauthentication:
    """After a password change, re-authenticates open connections, a few at a time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, identify: Callable[[Connection], None]
    ) -> None:
        self._loop = loop
        self._identify = identify
        self._pending: dict[int, Connection] = {}
        self._go_on_at: asyncio.Handle | None = None
        self._is_over = False

    def begin(self, connections: Mapping[int, Connection]) -> None:
        """Take from each its principal until it is identified again."""
        for connection in connections.values():
            connection.principal = None
        self._pending.update(connections)
        self._go_on_later()

    def settle(self, connection: Connection) -> None:
        """Identify a client now, if it is to be."""
        if self._pending.pop(connection.number, None) is not None:
            self._identify(connection)

    def forget(self, connection: Connection) -> None:
        """A client is gone, or identified."""
        self._pending.pop(connection.number, None)

    def close(self) -> None:
        """Identify no more clients."""
        self._is_over = True
        if self._go_on_at is not None:
            self._go_on_at.cancel()

    def _go_on_later(self) -> None:
        if self._go_on_at is None and self._pending and not self._is_over:
            self._go_on_at = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._go_on_at = None
        until = time.monotonic() + SLICE
        while self._pending and time.monotonic() < until:
            self._identify(self._pending.popitem()[1])
        self._go_on_later()


def _keep_alive(sock: socket.socket) -> None:
    """Send answers at once, and find out who is gone; a client may be by now."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE)
