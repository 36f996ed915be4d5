"""One client of the broker: its bytes, its commands in their order, its answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from typing import Protocol

from rq.access import kernel
from rq.access.roles import Principal, Role
from rq.broker.clients.sockets import SocketTransport
from rq.broker.dialects.call import Blocked
from rq.logs import fields
from rq.resp import (
    Command,
    Failure,
    Parser,
    ProtocolError,
    SpeaksOther,
    TooLarge,
    Value,
)
from rq.resp.encoding import encode

HELD = 1024 * 1024  # bytes of answers that a client has not taken; then it asks no more
OUTPUT = 128 * 1024 * 1024  # bytes of them at the most; then the client is sent away
PIECE = 128 * 1024  # bytes that are read at a time
_WATCHED = 8 * 1024 * 1024  # bytes of other clients' commands, to one that watches
_STRANGE_PIECE = 16 * 1024  # of a client that has not logged in
_STRANGE = 48 * 1024  # bytes that are kept of it, beside a piece
_SMALL = 16 * 1024  # bytes of an answer that is within the output limit, as HELD is
_AT_ONCE = 1000  # commands of a client until others have their turn
SLICE = 0.01  # seconds of them at the most, beside the last one

log = logging.getLogger(__name__)


class Commands(Protocol):
    """Who obeys the commands of all clients."""

    piece: memoryview  # where bytes lie that have just come, for all clients

    @property
    def is_paused(self) -> bool:
        """Whether no client is obeyed now, except the operator."""

    def obey(self, connection: Connection, command: Command) -> Value | Blocked: ...

    def note(self, connection: Connection, command: Command) -> None:
        """Count a command that is obeyed with the one before it."""

    def touched(self, connection: Connection) -> None:
        """There are replies of a client, which may not leave yet."""

    def go_on_later(self, connection: Connection) -> None:
        """A client has more commands; other clients go first."""

    def settle(self, connection: Connection) -> None:
        """Identify a client before anything is done for it."""

    def lost(self, connection: Connection) -> None:
        """A client is gone."""

    def hold_turn(self) -> None:
        """More is about to be read, and then `turn_now` is called."""

    def turn_now(self) -> None:
        """All that has come is read: it need not wait for more."""


class Connection(asyncio.BufferedProtocol):
    """A client."""

    def __init__(self, number: int, sock: socket.socket, commands: Commands) -> None:
        self.number = number
        self.sock = sock
        self.address = _address(sock)
        self.version = 2  # of the protocol
        self.name = ""
        self.principal: Principal | None = None  # None: it has to log in first
        self.is_spared = False  # the operator: not paused, nor one too many
        self.waits = False  # a command of it has no answer yet
        self.began = self.used = time.monotonic()
        self.library: dict[str, str] = {}  # that it uses, as it says
        self.skips: float = 0  # answers that it does not want
        self.last_name = b""  # of a command
        self.closing = False
        self.transport: asyncio.Transport | None = None
        self._carrier: asyncio.Transport | None = None  # the same, to its end
        self._commands = commands
        self._parser = Parser()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._reads_slowly = False
        self._rests = False  # nothing is read of it
        self._is_sent_away = False
        self._written = 0  # bytes of answers that the transport was given
        self._error: ProtocolError | None = None  # behind the commands that were taken

    def may(self, role: Role) -> bool:
        """Whether it has logged in as a user who may do what `role` may."""
        return self.principal is not None and self.principal.may(role)

    def may_all(self, role: Role) -> bool:
        """Whether it may do what `role` may, with all queues."""
        principal = self.principal
        return (
            principal is not None and principal.may(role) and not principal.is_limited
        )

    @property
    def age(self) -> int:
        """Seconds since it came."""
        return int(time.monotonic() - self.began)

    @property
    def last_command(self) -> str:
        """The name of the last command, as it is shown."""
        return self.last_name.decode(errors="replace").lower()[:32]

    # ---- its bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = self._carrier = transport
        transport.set_write_buffer_limits(high=HELD)
        if self._is_sent_away:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._commands.lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        size = _STRANGE_PIECE if self.principal is None else PIECE
        return self._commands.piece[:size]

    def buffer_updated(self, nbytes: int) -> None:
        self._parser.feed(self._commands.piece[:nbytes])
        self.go_on()

    def pause_writing(self) -> None:
        """It reads its replies more slowly than it asks: obey no more commands."""
        self._reads_slowly = True

    def resume_writing(self) -> None:
        self._reads_slowly = False
        self.go_on()

    # ---- its commands

    def go_on(self) -> None:
        """Obey the commands that have come, until one waits, or many answers do."""
        if self.principal is None:
            self._commands.settle(self)
        try:
            wants_more = self._obey_some()
        except TooLarge as error:
            self._error, wants_more = None, False  # the rest comes in the next turn
            self.answer(Failure(f"ERR {error}"))
        except SpeaksOther:
            self.refuse_browser()
            wants_more = False
        except ProtocolError as error:
            self.answer(Failure(f"ERR Protocol error: {error}"))
            self.close()
            wants_more = False
        if self._rests or not wants_more:
            self._read_or_rest()

    def _obey_some(self) -> bool:
        """Obey some; True: all, and it may ask more."""
        obey, take = self._commands.obey, self._parser.next
        until = time.monotonic() + SLICE
        for _ in range(_AT_ONCE):
            if not self._may_ask:
                return False
            if self._error is not None:
                raise self._error
            command = take()
            if command is None:
                if self.principal is None and self._parser.held > _STRANGE:
                    raise ProtocolError("too many bytes came before AUTH")
                return True
            value = obey(self, command)
            if isinstance(value, Blocked):
                self.waits = True
            else:
                self.answer(value)
            if self.used > until:  # which is when the last command began
                break
        self._commands.go_on_later(self)
        return False

    def take_those(self, fit: Callable[[Command], bool], most: int) -> list[Command]:
        """Take the commands that have come already and `fit`, up to the first that does
        not, and so many at most."""
        taken: list[Command] = []
        try:
            while len(taken) < most and (command := self._parser.next()) is not None:
                if not fit(command):
                    self._parser.put_back(command)
                    break
                taken.append(command)
        except ProtocolError as error:
            self._error = error
        for command in taken:
            self._commands.note(self, command)
        return taken

    @property
    def _may_ask(self) -> bool:
        if self.closing or self.waits or self._reads_slowly or self._out_bytes >= HELD:
            return False
        is_paused = self._commands.is_paused and not self.is_spared
        return not is_paused and self.transport is not None

    @property
    def held(self) -> int:
        """Bytes that came and are not obeyed yet."""
        return self._parser.held

    def _read_or_rest(self) -> None:
        if not self._rests and self._may_ask:
            return  # as most of the time
        if self.transport is None or self.transport.is_closing():
            return
        most = _STRANGE if self.principal is None else HELD
        if not self.closing and (self._may_ask or self._parser.held < most):
            self.transport.resume_reading()
            self._rests = False
        else:
            self.transport.pause_reading()
            self._rests = True

    def answer(self, value: Value) -> None:
        """Give the answer to its command, which leaves when that is promised."""
        if self.skips:
            self.skips -= 1
            return
        data = encode(value, self.version)
        if len(data) > _SMALL and self.unsent + len(data) > OUTPUT:
            self._send_away()
        else:
            self._put(data)

    def show(self, value: Value) -> None:
        """Send what it does not wait for; a client that reads it too slowly is ended."""
        if self.unsent > _WATCHED:
            self._send_away()
        else:
            self._put(encode(value, self.version))

    def _put(self, data: bytes) -> None:
        if not self._out:  # else it is known that there are some
            self._commands.touched(self)
        self._out.append(data)
        self._out_bytes += len(data)

    @property
    def unsent(self) -> int:
        """Bytes of answers that the kernel has not taken."""
        kept = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return self._out_bytes + kept

    @property
    def answers(self) -> int:
        """Pieces that they are: what the kernel has not taken all of is one."""
        return len(self._out) + (self.unsent > self._out_bytes)

    def _send_away(self) -> None:
        """End a client whose answers would take too much memory, with none of them."""
        command = self.last_command
        log.warning(
            "a client is sent away, for its answers are over the output limit: %s",
            fields(client=self.number, address=self.address, command=command),
        )
        self.kill()

    def kill(self) -> None:
        """End at once, without the answers that have not left."""
        self.closing = self._is_sent_away = True
        self._out.clear()
        self._out_bytes = 0
        if self.transport is not None:
            self.transport.abort()
        else:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)  # in its TLS handshake, if at all
        # Now, not when the transport tells: jobs of this turn were not handed out.
        self._commands.lost(self)

    def end_with(self, why: Value) -> None:
        """End: in place of all answers that have not left, and are not promised, it gets
        one that says why."""
        is_asking = self.waits or bool(self._out)
        self._out.clear()
        self._out_bytes = 0
        if is_asking:
            self._put(encode(why, self.version))
        self.closing = True
        self.send()

    def answer_waiting(self, *values: Value) -> None:
        """Give the answers that it has waited for, and go on with its commands."""
        if self.principal is None:
            self._commands.settle(self)
        if self._is_sent_away:
            return
        self.waits = False
        for value in values:
            self.answer(value)
        if self._parser.held or self._rests:
            self._commands.go_on_later(self)

    # ---- its answers

    def send(self) -> None:
        """Send its replies."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._out:
            self.transport.write(b"".join(self._out))
            self._written += self._out_bytes
            self._out.clear()
            self._out_bytes = 0
        if self.closing:
            self.transport.close()
        elif self._parser.held:
            self._commands.go_on_later(self)

    # A client has what it was handed as soon as the kernel has taken a byte of the answer.
    # So an answer is known by where it begins: what it hands is given back if the
    # connection ends, and no byte past that was taken.

    @property
    def at(self) -> int:
        """Where the next answer begins, in bytes of all."""
        return self._written + self._out_bytes

    @property
    def taken(self) -> int:
        """How many bytes of answers the kernel has taken, as far as it is known."""
        carrier = self._carrier
        return carrier.sent if isinstance(carrier, SocketTransport) else self._written

    @property
    def is_there(self) -> bool:
        """Whether it can still be answered. Its end may have come, and not be read yet:
        the kernel knows."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return False
        return not kernel.has_ended(self.sock)

    def refuse_browser(self) -> None:
        """End a client that speaks another protocol, with no answer to that."""
        log.warning("a browser asked the broker: %s", fields(client=self.address))
        self.close()

    def close(self) -> None:
        """End when its answers have left."""
        self.closing = True
        self._commands.touched(self)


def _address(sock: socket.socket) -> str:
    """Return who is at the other end, as HOST:PORT; of a Unix socket its kind."""
    if sock.family == socket.AF_UNIX:
        return "unix"
    with contextlib.suppress(OSError):
        host, port, *_ = sock.getpeername()
        return f"{host}:{port}"
    return "gone"
