"""One client of the broker: its bytes, its commands in their order, its answers."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rq.broker.dialects.call import Blocked
from rq.broker.resp import Command, Failure, Parser, ProtocolError, Value, encode
from rq.logs import fields

OUTPUT_LIMIT = 64 * 1024 * 1024  # bytes of answers that a client leaves unread
_COMMANDS_WAITING = 1000  # of a client that waits for a job; then it is read no more

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
        self._later: deque[Command] = deque()
        self._out: list[bytes] = []
        self._is_first = True

    # ---- its bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=1024 * 1024)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._commands.lost(self)

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self._parser.feed(data)
        try:
            self._take()
        except ProtocolError as error:
            self.answer(Failure(f"ERR Protocol error: {error}"))
            self.close()

    def pause_writing(self) -> None:
        """It reads its answers slower than it asks: let it ask no more."""
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.transport is not None and not self.waits:
            self.transport.resume_reading()

    # ---- its commands

    def _take(self) -> None:
        for command in self._parser.commands():
            if self._is_first and _is_http(command):
                log.warning(
                    "a browser asked the broker: %s", fields(client=self.number)
                )
                self.close()
                return
            self._is_first = False
            if self.waits:
                self._wait(command)
            else:
                self._obey(command)
            if self.closing:
                return

    def _wait(self, command: Command) -> None:
        self._later.append(command)
        if len(self._later) >= _COMMANDS_WAITING and self.transport is not None:
            self.transport.pause_reading()

    def _obey(self, command: Command) -> None:
        value = self._commands.obey(self, command)
        if isinstance(value, Blocked):
            self.waits = True
        else:
            self.answer(value)

    def answer(self, value: Value) -> None:
        """Give the answer to its command, which leaves when that is promised."""
        self._out.append(encode(value, self.version))
        self._commands.touched(self)

    def answer_waiting(self, value: Value) -> None:
        """Give the answer that it has waited for, and go on with its commands."""
        self.waits = False
        self.answer(value)
        while self._later and not self.waits and not self.closing:
            self._obey(self._later.popleft())
        if not self.waits and self.transport is not None:
            self.transport.resume_reading()

    # ---- its answers

    def send(self) -> None:
        """Let its answers leave."""
        if self.transport is None:
            return
        if self._out:
            self.transport.write(b"".join(self._out))
            self._out.clear()
        if self.transport.get_write_buffer_size() > OUTPUT_LIMIT:
            log.warning("a client reads too slowly: %s", fields(client=self.number))
            self.transport.abort()
        elif self.closing:
            self.transport.close()

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


Factory = Callable[[int, socket.socket], Connection]
