"""The supervisor's end of the line to the fork server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rq.config.parked import Listens

_READ = 64 * 1024


@dataclass(frozen=True, slots=True)
class Ready:
    """The fork server takes requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A queue process was forked; without a pid it could not be."""

    name: str
    pid: int | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited:
    """A queue process has ended."""

    pid: int
    status: int


Answer = Ready | Forked | Exited


def parse(line: bytes) -> Answer:
    """Return what a line of the fork server says."""
    data = json.loads(line)
    if "ready" in data:
        return Ready()
    if "exit" in data:
        return Exited(pid=data["pid"], status=data["exit"])
    return Forked(name=data["name"], pid=data["pid"], error=data.get("error", ""))


class Forks:
    """Asks for queue processes; the answers of the fork server go to `act`."""

    def __init__(
        self, line: socket.socket, life: int, act: Callable[[Answer], None]
    ) -> None:
        self._line = line
        self._life = life
        self._act = act
        self._text = b""
        asyncio.get_running_loop().add_reader(line, self._receive)

    def ask(self, name: str, listens: Listens | None) -> socket.socket:
        """Ask for the process of queue `name`; return the line over which it will say that
        it is ready. `listens`: what it has, if it was parked."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        about = {
            "name": name,
            **({} if listens is None else {"end": asdict(listens.end)}),
        }
        request = json.dumps(about).encode() + b"\n"
        fds = [theirs.fileno(), self._life]
        fds += [] if listens is None else [listens.fd]
        try:
            with theirs:
                socket.send_fds(self._line, [request], fds)
        except OSError:
            ours.close()
            raise
        ours.setblocking(False)
        return ours

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._line)
        self._line.close()

    def _receive(self) -> None:
        try:
            data = self._line.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._line)
            return
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            self._act(parse(line))
