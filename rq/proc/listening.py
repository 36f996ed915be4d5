"""Listens for connections, and takes them also when descriptors run out."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from rq.errors import BadConfig, Refused

AT_ONCE = 64  # connections that are taken before others on the loop have their turn
REST = 1.0  # seconds without another try, after a failure
LOG_EVERY = 60.0  # seconds between two lines about failures

BACKLOG = 2048  # connections that wait to be taken

log = logging.getLogger(__name__)


def listen(addr: str, port: int, whose: str) -> socket.socket:
    """Return a socket that listens and does not block. Raises as `bind`."""
    sock = bind(addr, port, whose)
    try:
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise _refused(addr, port, whose, error) from None
    return sock


def bind(addr: str, port: int, whose: str) -> socket.socket:
    """Return a socket that does not block, and listens when its time has come: until then
    whoever connects is refused, and does not wait. BadConfig: `addr` is no address.
    Refused: `whose` cannot listen there now, and why."""
    try:
        infos = socket.getaddrinfo(
            addr.strip("[]") or None,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except (socket.gaierror, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a host"
        raise BadConfig(f"addr {addr}: {why}") from None
    family, kind, number, _, address = infos[0]
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _refused(addr, port, whose, error) from None
    return sock


def _refused(addr: str, port: int, whose: str, error: OSError) -> Refused:
    return Refused(f"{whose} cannot listen on {addr}:{port}: {error.strerror}")


class Listener:
    """Gives each new connection, which does not block, to `on_connection`."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_connection: Callable[[socket.socket], None],
    ) -> None:
        self._sock = sock
        self._loop = loop
        self._on_connection = on_connection
        self._logged_at = float("-inf")
        loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Take no more connections."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._rest(error)
                return
            sock.setblocking(False)
            self._on_connection(sock)

    def _rest(self, error: OSError) -> None:
        """Try again in a while: until then the connection stays in the backlog, and the
        socket readable, so that the loop would spin."""
        now = time.monotonic()
        if now - self._logged_at >= LOG_EVERY:
            self._logged_at = now
            log.error(
                "connections cannot be accepted: %s; RQ tries again each second", error
            )
        self._loop.remove_reader(self._sock)
        self._loop.call_later(REST, self._listen_again)

    def _listen_again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock, self._accept)
