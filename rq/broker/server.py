"""The broker at work: clients' commands go to the node, its events to the store, and
replies leave when what they say is durable.

A command is obeyed as soon as it is read; its reply is only put behind the others of
its client. Then the server asks for a turn, which comes after all that can be read now.
A turn

1. lets the node do what is due, and encodes the replies of clients that waited;
2. sends early letters: copies of jobs, which other nodes write while this one does;
3. writes the events of all commands since the last turn and, if one of them needs it,
   syncs once for all;
4. only then sends: replies to clients, letters to other nodes.

At all times a reply or a letter that is sent speaks of durable events alone, unless the
operator has set `appendfsync` to less than `always`. If the disk fails at 3, nothing is
sent, and the turn is tried again in half a second; meanwhile what would add to the
journal is refused. If the directory is not the node's any more, waiting clients get an
error in place of their replies, and the process ends.

No step holds the loop: commands, replies and what is due go on in slices, and a command
with large bodies waits for these in a thread, beside the loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from rq.access.tls import Certificate
from rq.broker.bridge.bridge import Bridge
from rq.broker.bus.cluster import Cluster
from rq.broker.clients import rights
from rq.broker.clients.admission import Admission
from rq.broker.clients.connection import PIECE, SLICE, Connection
from rq.broker.clients.deliveries import Deliveries
from rq.broker.clients.door import Door, People
from rq.broker.clients.figures import SYNC, Figures
from rq.broker.clients.scheduler import Scheduler
from rq.broker.desks.node import ENTRY_BYTES, Node
from rq.broker.dialects import TABLE as DIALECTS
from rq.broker.dialects.call import (
    BLOCKED,
    NO_MEMORY,
    Blocked,
    Call,
    Command,
    Refusal,
)
from rq.broker.state.bounds import LONGEST_WORD
from rq.broker.store.bodies import weight
from rq.broker.store.durability import Durability
from rq.broker.store.store import Store
from rq.config.broker import EVICTS, BrokerConfig
from rq.layout import Root
from rq.resp import Failure, Inline, Value

Args = list[bytes]
_AGAIN = 0.5  # seconds until a sync that failed is tried again
_SLICE = 0.002  # seconds between two slices of a snapshot
# A page that a person visits must not be able to send jobs.
_HTTP = frozenset(
    b"GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH PRI HOST:".split()
)
_NO_AUTH = Failure("NOAUTH Authentication required.")
_NO_MEMORY = Failure(NO_MEMORY)
_LONG_WORD = Failure(f"ERR a name or a number has at most {LONGEST_WORD} bytes")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """What a name does about the broker itself; `arity` as in `Command`."""

    function: Callable[[Server, Connection, Args], Value | Blocked]
    arity: int
    before_auth: bool = False  # a client need not have logged in

    def takes(self, words: int) -> bool:
        """Whether a command may have so many words, its name counted."""
        return words == self.arity if self.arity >= 0 else words >= -self.arity


class Server:
    """A node with its clients, its disk and its cluster."""

    def __init__(
        self,
        node: Node,
        store: Store,
        settings: BrokerConfig,
        people: People,
        admin: Mapping[bytes, AdminCommand],
        loop: asyncio.AbstractEventLoop,
        root: Root | None = None,
    ) -> None:
        """`admin`: the commands about the broker itself."""
        self.node = node
        self.commands: Mapping[bytes, Command | AdminCommand] = {**DIALECTS, **admin}
        self.bridge = Bridge(root, node)
        self.has_supervisor = root is not None
        self.config_file = store.settings_file if root is None else root.broker_config
        self.store = store
        self.use(settings)
        self.idle_settings: dict[str, str] = {}  # told by CONFIG GET, of no effect
        self.door = Door(settings.password, people)
        self.figures = Figures()
        self.admission = Admission(
            self, self.door, loop, lambda: self.settings, self.figures.monitors
        )
        self.connections = self.admission.connections
        self.piece = memoryview(bytearray(PIECE))
        self.scheduler = Scheduler(loop, self.connections)
        self._deliveries = Deliveries(
            node, store, self.connections, self.scheduler, self.soon
        )
        self.durability = Durability(
            node,
            store,
            loop,
            settings=lambda: self.settings,
            soon=self.soon,
            give_up=self.give_up,
            note_sync=self._note_sync,
        )
        self.cluster = Cluster(
            node,
            store,
            self.durability,
            loop,
            settings=lambda: self.settings,
            soon=self.soon,
        )
        node.presence = self._is_there
        self.began = time.time()
        self.stop = loop.create_future()
        self._loop = loop
        self._touched: dict[int, Connection] = {}
        self._turn_at: asyncio.Handle | None = None
        self._holds_turn = self._wants_turn = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_for: float | None = None  # the tick that it waits for
        self._is_over = False  # nothing is begun any more

    # ---- clients

    def listen(
        self, sock: socket.socket, certificate: Certificate | None = None
    ) -> None:
        """Take clients from a listening socket; over TLS with a certificate."""
        self.admission.listen(sock, certificate)
        self.soon()

    @property
    def is_paused(self) -> bool:
        """Whether no client is obeyed now, except the operator."""
        return self.scheduler.is_paused

    def use(self, settings: BrokerConfig) -> None:
        """Use these settings from now on; the node, too, which other nodes send copies to."""
        self.settings = settings
        self.node.memory.limit = settings.maxmemory
        self.node.memory.evicts = settings.maxmemory_policy == EVICTS

    def settle(self, connection: Connection) -> None:
        """Identify a client before anything is done for it."""
        self.admission.settle(connection)

    def lost(self, connection: Connection) -> None:
        """A client is gone."""
        self.node.hung_up(connection.number, self.store.clock.now())
        self.bridge.lost(connection)
        self.admission.lost(connection)
        self.figures.monitors.pop(connection.number, None)
        self._deliveries.lost(connection)
        self.soon()  # what it waited for is cleared in slices

    def _is_there(self, client: int) -> bool:
        """Whether a client that waits can be answered. One that has hung up is passed over,
        and ended here: its end may never be read, if it has sent too much ahead."""
        connection = self.connections.get(client)
        if connection is None or connection.is_there:
            return connection is not None
        self._loop.call_soon(connection.kill)
        return False

    # ---- commands

    def obey(self, connection: Connection, command: list[bytes]) -> Value | Blocked:
        """Obey a command; return its reply, or that its client waits for it."""
        reply = self._obey(connection, command)
        return self._deliveries.answered(connection, reply)

    def _obey(self, connection: Connection, command: list[bytes]) -> Value | Blocked:
        name = command[0].upper()
        began = connection.used = time.monotonic()
        is_first = not connection.last_name
        connection.last_name = name[:32]
        entry = self.commands.get(name)
        if entry is None:
            return _unknown(connection, name, command, is_first=is_first)
        value: Value | Blocked = None
        if (
            connection.principal is None
            or not entry.takes(len(command))
            or max(map(len, command)) > LONGEST_WORD
        ):  # else there is nothing that `_refused` could find
            value = _refused(connection, command, entry)
        if value is None:
            if self.figures.monitors:
                self.figures.show(connection, command)
            value = self._obeyed(entry, connection, name, command[1:])
        took = time.monotonic() - began
        self.figures.note(name, took, began, refused=isinstance(value, Failure))
        self.figures.note_slow(connection, command, took, self.settings)
        return value

    def note(self, connection: Connection, command: list[bytes]) -> None:
        """Count a command that is obeyed with the one before it."""
        if self.figures.monitors:
            self.figures.show(connection, command)
        self.figures.note(command[0].upper(), 0.0, time.monotonic(), refused=False)

    def _obeyed(
        self,
        entry: Command | AdminCommand,
        connection: Connection,
        name: bytes,
        args: list[bytes],
    ) -> Value | Blocked:
        try:
            if isinstance(entry, AdminCommand):
                rights.check_itself(connection.principal, name, args)
                return entry.function(self, connection, args)
            if self.bridge.takes(name, args):
                local = functools.partial(self._call, entry, connection, name)
                return self.bridge.obey(connection, name, args, local)
            if entry.grows:
                bodies = () if entry.bodies is None else args[entry.bodies]
                is_large, size = weight(bodies)
                more = len(bodies) * ENTRY_BYTES + size
                if (no_room := self._no_room(more)) is not None:
                    return no_room
                if is_large:
                    return self._keep_large(entry, connection, name, args)
            return self._call(entry, connection, name, args)
        except Refusal as refusal:
            return refusal.failure

    def _keep_large(
        self, entry: Command, connection: Connection, name: bytes, args: list[bytes]
    ) -> Blocked:
        call = self.as_call(connection, args)
        rights.check(connection.principal, name, entry, call)
        obeyed = self._obey_large(entry, connection, name, args)
        return self.scheduler.answer_later(connection, obeyed)

    async def _obey_large(
        self, entry: Command, connection: Connection, name: bytes, args: list[bytes]
    ) -> Value | Blocked:
        """Obey a command with large bodies, once these are durable in files."""
        try:
            bodies = args[entry.bodies or slice(0)]
            kept = await asyncio.to_thread(self.store.bodies.keep, bodies)
        except OSError as error:
            return Failure(f"MISCONF Errors writing to the AOF file: {error.strerror}")
        words = list(args)
        words[entry.bodies or slice(0)] = kept
        try:
            return self._call(entry, connection, name, words)
        except Refusal as refusal:
            # The thread may hold its list still, and these bodies are to go now.
            kept.clear()
            words.clear()
            return refusal.failure

    def _no_room(self, more: int) -> Failure | None:
        """Return why nothing can be taken that needs `more` bytes of memory; None: it
        can."""
        if self.node.is_full(self.store.clock.now(), more):
            return _NO_MEMORY
        if (why := self.durability.trouble) is not None:
            return Failure(f"MISCONF Errors writing to the AOF file: {why}")
        return None

    def _note_sync(self, took: float) -> None:
        self.figures.note_time(SYNC, took, self.settings.latency_threshold)

    @property
    def blocked(self) -> int:
        """How many clients wait for something to come."""
        return self.node.blocked + self.bridge.blocked

    def _call(
        self, entry: Command, connection: Connection, name: bytes, args: list[bytes]
    ) -> Value | Blocked:
        now = self.store.clock.now()
        call = Call(self.node, connection.number, args, now, int(time.time() * 1000))
        rights.check(connection.principal, name, entry, call)
        value = entry.function(call)
        if isinstance(value, Blocked) and connection.number not in self.connections:
            # It hung up while its body was written, and would wait for ever.
            self.node.hung_up(connection.number, now)
        if not self._wants_turn:
            self.soon()
        if len(self.node.events) >= 1000:
            self.durability.keep(now)
        return value

    def as_call(self, connection: Connection, args: list[bytes]) -> Call:
        """Return the arguments of a command, and when it comes."""
        now, wall_ms = self.store.clock.now(), int(time.time() * 1000)
        return Call(self.node, connection.number, args, now, wall_ms)

    # ---- turns

    def touched(self, connection: Connection) -> None:
        """There are replies of a client, which may not leave yet."""
        self._touched[connection.number] = connection
        if not self._wants_turn:
            self.soon()

    def go_on_later(self, connection: Connection) -> None:
        """A client has more commands; other clients go first."""
        self.scheduler.resume_later(connection)

    def soon(self) -> None:
        """Ask for a turn, after all that has come by now."""
        if self._turn_at is not None or self._is_over:
            return
        if self._holds_turn:
            self._wants_turn = True
        else:
            self._turn_at = self._loop.call_soon(self._turn)

    def hold_turn(self) -> None:
        """More is about to be read, and then `turn_now` is called."""
        self._holds_turn = True

    def turn_now(self) -> None:
        """Have the turn that was asked for, unless it waits for the disk."""
        turn_at, wants_turn = self._turn_at, self._wants_turn
        self._holds_turn = self._wants_turn = False
        if turn_at is not None and not isinstance(turn_at, asyncio.TimerHandle):
            turn_at.cancel()
            wants_turn = True
        if wants_turn:
            self._turn()

    def _turn(self) -> None:
        self._turn_at = None
        now = self.store.clock.now()
        self.node.tick(now)
        self._deliveries.answer_waiting()
        self.cluster.send_early()
        self.durability.keep(now)
        if not self.durability.reach():
            if not self._is_over:
                self._turn_at = self._loop.call_later(_AGAIN, self._turn)
            return
        self._send()
        self.cluster.send_letters()
        self._go_on()

    def _send(self) -> None:
        """Send replies for a slice; the others leave in the next turn."""
        touched, self._touched = self._touched, {}
        until = time.monotonic() + SLICE
        for done, connection in enumerate(touched.values()):
            if time.monotonic() > until:
                self._touched = {
                    **dict(islice(touched.items(), done, None)),
                    **self._touched,
                }
                self.soon()
                break
            connection.send()
        self._deliveries.have_left()

    def _go_on(self) -> None:
        """Ask for the next turn: when something is due, or a snapshot goes on."""
        if self.store.mind_snapshot(self.node):
            self._loop.call_later(_SLICE, self.soon)
        self.durability.watch_room()
        at = self.node.next_tick()
        if at == self._timer_for:
            return  # most turns leave the first deadline as it is
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_for = at
        if at is not None:
            wait = max(0.0, at - self.store.clock.now())
            self._timer = self._loop.call_later(min(wait, 60.0), self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_for = None
        self.soon()

    # ---- the end

    def give_up(self, why: str) -> None:
        """The directory is not the node's any more, and no start would find what is
        written: answer nothing that is not durable, and end."""
        if self._is_over:
            return
        self._is_over = True
        log.error(
            "%s: it was removed, moved, mounted over, or a backup was laid over it; "
            "nothing more is accepted, and this process ends",
            why,
        )
        failure = Failure(f"ERR {why}: the broker accepts nothing, and ends")
        for connection in list(self.connections.values()):
            connection.end_with(failure)
        if not self.stop.done():
            self.stop.set_result(None)

    def close(self) -> None:
        """End cleanly: what was answered is durable, what was not is not answered."""
        self.admission.close()
        self.cluster.close()
        self.scheduler.close()
        self.bridge.close()
        if not self.store.displaced:
            self.durability.keep(self.store.clock.now())
            if self.durability.reach():
                for connection in self._touched.values():
                    connection.send()
        self.admission.end()
        self._is_over = True
        for handle in (self._turn_at, self._timer):
            if handle is not None:
                handle.cancel()
        self.durability.close()
        self.store.close()


def _unknown(
    connection: Connection, name: bytes, command: list[bytes], *, is_first: bool
) -> Value | Blocked:
    """Refuse an unknown command, and disconnect what is no client: a browser, or a program
    that begins with a line of text. Clients may begin with a command that is not known
    here, too (`SENTINEL`, `SELECT`), but never as a line of text."""
    if _is_http(name, command):
        connection.refuse_browser()
        return BLOCKED
    if is_first and isinstance(command, Inline):
        connection.close()
    typed = command[0].decode(errors="replace")
    return Failure(f"ERR unknown command '{typed:.128}'")


def _is_http(name: bytes, command: list[bytes]) -> bool:
    """Whether an unknown command is the first line of an HTTP request. GET with the name
    of a key is none."""
    if name == b"GET" and not command[-1].startswith((b"/", b"HTTP/")):
        return False
    return name in _HTTP or command[-1].startswith(b"HTTP/")


def _refused(
    connection: Connection, command: list[bytes], entry: Command | AdminCommand
) -> Failure | None:
    """Return why a command is not obeyed, before its words are read: it has too few or too
    many of them, its client has not logged in, or a name in it is too long."""
    if not entry.takes(len(command)):
        typed = command[0].decode(errors="replace").lower()
        return Failure(f"ERR wrong number of arguments for '{typed}' command")
    if connection.principal is None and not (
        isinstance(entry, AdminCommand) and entry.before_auth
    ):
        return _NO_AUTH
    if isinstance(entry, Command) and entry.has_long_word(command[1:]):
        return _LONG_WORD
    return None
