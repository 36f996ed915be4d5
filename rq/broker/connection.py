"""One client of the broker: its bytes, its commands in their order, its answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Protocol

from rq.broker.dialects.call import Blocked
from rq.logs import fields
from rq.resp import Command, Failure, Parser, ProtocolError, Value, encode

HELD = 1024 * 1024  # bytes of answers that a client has not taken; then it asks no more

log = logging.getLogger(__name__)


class Commands(Protocol):
    """Who obeys the commands of all clients."""

    def obey(self, connection: Connection, command: Command) -> Value | Blocked: ...

    def touched(self, connection: Connection) -> None:
        """There are answers, which may not leave yet."""

    def lost(self, connection: Connection) -> None:
        """A client is gone."""


class Connection(asyncio.Protocol):
    """A client."""

    def __init__(self, number: int, sock: socket.socket, commands: Commands) -> None:
        self.number = number
        self.sock = sock
        self.address = _address(sock)
        self.version = 2  # of the protocol
        self.name = ""
        self.may_come_in = False
        self.is_trusted = False  # may do what only the operator may
        self.waits = False  # a command of it has no answer yet
        self.began = 0.0
        self.last_command = ""
        self.closing = False
        self.transport: asyncio.Transport | None = None
        self._commands = commands
        self._parser = Parser()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._reads_slowly = False
        self._is_first = True

    # ---- its bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=HELD)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._commands.lost(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        self.go_on()

    def pause_writing(self) -> None:
        """It takes its answers slower than it asks: let it ask no more."""
        self._reads_slowly = True

    def resume_writing(self) -> None:
        self._reads_slowly = False
        self.go_on()

    # ---- its commands

    def go_on(self) -> None:
        """Obey the commands that have come, until one waits, or many answers do."""
        try:
            while self._may_ask and (command := self._parser.next()) is not None:
                self._obey(command)
        except ProtocolError as error:
            self.answer(Failure(f"ERR Protocol error: {error}"))
            self.close()
        self._read_or_rest()

    @property
    def _may_ask(self) -> bool:
        stopped = self.closing or self.waits or self._reads_slowly
        return not stopped and self._out_bytes < HELD

    def _read_or_rest(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._may_ask or self._parser.held < HELD:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _obey(self, command: Command) -> None:
        if self._is_first and _is_http(command):
            log.warning("a browser asked the broker: %s", fields(client=self.number))
            self.close()
            return
        self._is_first = False
        value = self._commands.obey(self, command)
        if isinstance(value, Blocked):
            self.waits = True
        else:
            self.answer(value)

    def answer(self, value: Value) -> None:
        """Give the answer to its command, which leaves when that is promised."""
        data = encode(value, self.version)
        self._out.append(data)
        self._out_bytes += len(data)
        self._commands.touched(self)

    def answer_waiting(self, value: Value) -> None:
        """Give the answer that it has waited for, and go on with its commands."""
        self.waits = False
        self.answer(value)
        self.go_on()

    # ---- its answers

    def send(self) -> None:
        """Let its answers leave."""
        if self.transport is None:
            return
        if self._out:
            self.transport.write(b"".join(self._out))
            self._out.clear()
            self._out_bytes = 0
        if self.closing:
            self.transport.close()
        elif self._parser.held:
            self.go_on()

    @property
    def has_answers(self) -> bool:
        """Whether some have not left."""
        return bool(self._out)

    def close(self) -> None:
        """End when its answers have left."""
        self.closing = True
        self._commands.touched(self)


def _is_http(command: Command) -> bool:
    return len(command) == 3 and command[2].startswith(b"HTTP/")


def _address(sock: socket.socket) -> str:
    """Return who is at the other end, as HOST:PORT; of a Unix socket its kind."""
    if sock.family == socket.AF_UNIX:
        return "unix"
    with contextlib.suppress(OSError):
        host, port, *_ = sock.getpeername()
        return f"{host}:{port}"
    return "gone"
