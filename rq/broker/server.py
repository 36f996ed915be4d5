"""The broker at work: clients' commands go to the node, its events to the store, and
answers leave when what they say is durable.

All commands that came since the last turn share one sync.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping
from concurrent.futures import Executor

from rq.access import kernel
from rq.broker import admin
from rq.broker.connection import Connection
from rq.broker.dialects import bananaq, disque_jobs, disque_queues, redisrq
from rq.broker.dialects.call import Blocked, Call, Command, Refusal
from rq.broker.door import Door
from rq.broker.node import Node
from rq.broker.store import Store
from rq.config.broker import BrokerConfig
from rq.errors import DiskFailed
from rq.logs import fields
from rq.proc import peers
from rq.proc.listening import Listener
from rq.resp import Failure, Value

_TABLE: Mapping[bytes, Command] = {
    **disque_jobs.TABLE,
    **disque_queues.TABLE,
    **redisrq.TABLE,
    **bananaq.TABLE,
}
_NO_AUTH = Failure("NOAUTH Authentication required.")
_JOB_BYTES = 600  # of memory that a job, or the like, takes beside its body
_AGAIN = 0.5  # seconds until a sync that failed is tried again
_SLICE = 0.002  # seconds between two slices of a snapshot

log = logging.getLogger(__name__)


class Server:
    """All clients of a node."""

    def __init__(
        self,
        node: Node,
        store: Store,
        settings: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
    ) -> None:
        self.node = node
        self.store = store
        self.settings = settings
        self.door = Door(settings.password, threads)
        self.connections: dict[int, Connection] = {}
        self.commands = 0  # since the start
        self.began = time.time()
        self.stop = loop.create_future()
        self._loop = loop
        self._listeners: list[Listener] = []
        self._numbers = 0
        self._touched: dict[int, Connection] = {}
        self._turn_at: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sync_at: asyncio.TimerHandle | None = None
        self._failing: str | None = None

    # ---- clients

    def listen(self, sock: socket.socket) -> None:
        """Take clients from a listening socket."""
        self._listeners.append(Listener(sock, self._loop, self._accept))
        self.soon()

    def _accept(self, sock: socket.socket) -> None:
        self._numbers += 1
        connection = Connection(self._numbers, sock, self)
        connection.began = self.store.clock.now()
        connection.may_come_in = connection.is_trusted = self._is_named(sock)
        self.connections[connection.number] = connection
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted = self._loop.connect_accepted_socket(lambda: connection, sock)
        task = self._loop.create_task(accepted)
        task.add_done_callback(lambda _: self._taken(connection))

    def _taken(self, connection: Connection) -> None:
        if len(self.connections) > self.settings.maxclients:
            connection.answer(Failure("ERR max number of clients reached"))
            connection.close()

    def _is_named(self, sock: socket.socket) -> bool:
        """Whether a client needs no password: the kernel says that it is of our own user,
        or root, and it uses the Unix socket, or nobody has set a password."""
        if sock.family == socket.AF_UNIX:
            return admin.is_own(peers.peer_of(sock).uid)
        if self.settings.password:
            return False
        return admin.is_own(kernel.owner_of_peer(sock))

    def lost(self, connection: Connection) -> None:
        """A client is gone."""
        self.node.hung_up(connection.number)
        self.connections.pop(connection.number, None)
        if connection.has_answers:
            self._take_back(connection.number)

    def _take_back(self, client: int) -> None:
        """Let jobs be as they were that a client was handed in an answer of which it
        had no byte."""
        now = self.store.clock.now()
        for other, job_id in self.node.handed:
            if other == client:
                self.node.take_back(job_id, now)
        self._answer_waiting()
        self.soon()

    # ---- commands

    def obey(self, connection: Connection, command: list[bytes]) -> Value | Blocked:
        """Do what a client asks; return its answer."""
        name = command[0].upper()
        self.commands += 1
        connection.last_command = name.decode(errors="replace").lower()[:32]
        entry: Command | admin.AdminCommand | None
        entry = _TABLE.get(name) or admin.TABLE.get(name)
        failure = self._refused(connection, command, entry)
        if failure is not None:
            return failure
        try:
            if isinstance(entry, admin.AdminCommand):
                return entry.function(self, connection, command[1:])
            assert entry is not None
            return self._call(entry, connection, command[1:])
        except Refusal as refusal:
            return refusal.failure

    def _refused(
        self,
        connection: Connection,
        command: list[bytes],
        entry: Command | admin.AdminCommand | None,
    ) -> Failure | None:
        typed = command[0].decode(errors="replace")
        if entry is None:
            return Failure(f"ERR unknown command '{typed:.128}'")
        if not entry.takes(len(command)):
            why = f"ERR wrong number of arguments for '{typed.lower()}' command"
            return Failure(why)
        if not connection.may_come_in and command[0].upper() not in admin.BEFORE_AUTH:
            return _NO_AUTH
        if isinstance(entry, Command):
            return self._no_room(entry)
        return None

    def _no_room(self, entry: Command) -> Failure | None:
        if entry.grows and self.used_memory > self.settings.maxmemory:
            return Failure("OOM command not allowed when used memory > 'maxmemory'.")
        why = self._failing or self.store.no_space
        if entry.grows and why is not None:
            return Failure(f"MISCONF Errors writing to the AOF file: {why}")
        return None

    @property
    def used_memory(self) -> int:
        """Bytes that jobs take."""
        number, body_bytes = self.node.size
        return body_bytes + _JOB_BYTES * number

    def _call(
        self, entry: Command, connection: Connection, args: list[bytes]
    ) -> Value | Blocked:
        now = self.store.clock.now()
        call = Call(self.node, connection.number, args, now, int(time.time() * 1000))
        value = entry.function(call)
        self.soon()
        if len(self.node.events) >= 1000:
            self._keep(now)
        return value

    def _answer_waiting(self) -> None:
        """Answer those who waited; the answer to the command that let them go on stands
        before theirs."""
        while self.node.answers:
            answers, self.node.answers = self.node.answers, []
            for client, value in answers:
                connection = self.connections.get(client)
                if connection is not None:
                    connection.answer_waiting(value)
                else:
                    self._take_back(client)

    # ---- turns

    def touched(self, connection: Connection) -> None:
        """There are answers, which may not leave yet."""
        self._touched[connection.number] = connection
        self.soon()

    def soon(self) -> None:
        """Ask for a turn, after all that has come by now."""
        if self._turn_at is None:
            self._turn_at = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_at = None
        now = self.store.clock.now()
        self.node.tick(now)
        self._answer_waiting()
        self._keep(now)
        if not self._durable():
            self._turn_at = self._loop.call_later(_AGAIN, self._turn)
            return
        touched, self._touched = self._touched, {}
        for connection in touched.values():
            connection.send()
        self.node.handed.clear()
        self._go_on()

    def _keep(self, now: float) -> None:
        """Give the node's events to the store."""
        events, self.node.events = self.node.events, []
        self.store.append(events, now)
        if self.store.full:
            self._commit()

    def _durable(self) -> bool:
        """Make durable what the answers say; False: it is not."""
        needs_no_sync = not self.node.must_sync or self._syncs_later()
        return (needs_no_sync and self.store.write()) or self._commit()

    def _syncs_later(self) -> bool:
        """Whether answers may leave before what they say is durable, as somebody has set;
        then a sync follows within a second, or when the system likes."""
        if self.settings.appendfsync == "everysec" and self._sync_at is None:
            self._sync_at = self._loop.call_later(1.0, self._sync_now)
        return self.settings.appendfsync != "always"

    def _sync_now(self) -> None:
        self._sync_at = None
        if not self._commit():
            self.soon()

    def _commit(self) -> bool:
        try:
            self.store.commit()
        except DiskFailed as error:
            if self._failing is None:
                log.error("answers wait for the disk: %s", fields(reason=error))
            self._failing = str(error)
            return False
        self._failing = None
        self.node.must_sync = False
        return True

    def _go_on(self) -> None:
        """Ask for the next turn: when something is due, or a snapshot goes on."""
        if self.store.mind_snapshot(self.node):
            self._loop.call_later(_SLICE, self.soon)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self.node.next_tick()
        if at is not None:
            wait = max(0.0, at - self.store.clock.now())
            self._timer = self._loop.call_later(min(wait, 60.0), self.soon)

    # ---- the end

    def close(self) -> None:
        """End cleanly: what was answered is durable, what was not is not answered."""
        for listener in self._listeners:
            listener.close()
        self._keep(self.store.clock.now())
        if self._durable():
            for connection in self._touched.values():
                connection.send()
        for connection in list(self.connections.values()):
            if connection.transport is not None:
                connection.transport.close()
        self.store.close()
