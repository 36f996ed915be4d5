"""Listens for connections, and takes them also when descriptors run out.

Both loopbacks. `localhost` means 127.0.0.1 and ::1, and browsers try ::1 first. A server
on one of them alone leaves the other one to any user of the machine, who is then asked
for passwords in its name. So a server on one loopback takes the other one as well, and
so does one on 0.0.0.0, which covers IPv4 alone. The address in the settings must be had;
the other one is taken if it can be: where another process holds it the server works
without, and says so; a machine without IPv6 has no such address, and nothing to say.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rq import names
from rq.errors import BadConfig, Refused

AT_ONCE = 64  # connections that are taken before others on the loop have their turn
REST = 1.0  # seconds without another try, after a failure
LOG_EVERY = 60.0  # seconds between two lines about failures

BACKLOG = 2048  # connections that wait to be taken

_FOUR, _SIX, _ALL_FOUR = "127.0.0.1", "::1", "0.0.0.0"
_NUMBERS = {"localhost": _FOUR, "": _ALL_FOUR}
_ALSO = {_FOUR: _SIX, _SIX: _FOUR, _ALL_FOUR: _SIX}
# What a system call says of an address that this machine does not have.
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bound:
    """The sockets of a server, that of the address in its settings first."""

    socks: Sequence[socket.socket]
    held: str = ""  # `HOST:PORT` of the other loopback, where another process holds it

    def listening(self) -> Bound:
        """Make them listen. OSError: the first one cannot."""
        first, *others = self.socks
        first.listen(BACKLOG)
        for sock in others:
            try:
                sock.listen(BACKLOG)
            except OSError as error:  # another has begun to listen since `bind`
                place = names.host_port(*sock.getsockname()[:2])
                log.warning("nothing of RQ listens on %s: %s", place, error)
                sock.close()
                return Bound((first,), place)
        return self

    def close(self) -> None:
        """Listen no more."""
        for sock in self.socks:
            sock.close()


def addresses(addr: str) -> tuple[str, ...]:
    """Return all addresses that a server takes for the one in its settings.

    >>> addresses("localhost"), addresses("[::1]"), addresses("192.0.2.7")
    (('127.0.0.1', '::1'), ('::1', '127.0.0.1'), ('192.0.2.7',))
    """
    first = number(addr)
    return (first, _ALSO[first]) if first in _ALSO else (first,)


def number(addr: str) -> str:
    """Return an address as a number, which no table of names can lead elsewhere; another
    name of a host as it is.

    >>> number("localhost"), number("[::1]"), number("rq.example")
    ('127.0.0.1', '::1', 'rq.example')
    """
    plain = addr.strip("[]").lower()
    return _NUMBERS.get(plain, plain)


def listen(addr: str, port: int, whose: str) -> Bound:
    """Return sockets that listen and do not block. Raises as `bind`."""
    bound = bind(addr, port, whose)
    try:
        return bound.listening()
    except OSError as error:
        bound.close()
        raise _refused(addr, port, whose, error) from None


def bind(addr: str, port: int, whose: str) -> Bound:
    """Return sockets that do not block, and listen when their time has come: until then
    clients that connect are refused, and do not wait. BadConfig: `addr` is no address.
    Refused: `whose` cannot listen there now, and why."""
    first, *others = addresses(addr)
    family, address = _resolved(first, port)
    try:
        sock = _bound(family, address)
    except OSError as error:
        raise _refused(addr, port, whose, error) from None
    for other in others:
        try:
            return Bound((sock, open_at(other, sock.getsockname()[1])))
        except OSError as error:
            if error.errno not in _ABSENT:
                place = names.host_port(other, port)
                log.warning("%s cannot listen on %s as well: %s", whose, place, error)
                return Bound((sock,), place)
    return Bound((sock,))


def is_free(addr: str, port: int) -> bool:
    """Return whether a server could listen at an address, or need not: this machine does
    not have it."""
    try:
        with open_at(addr, port) as sock:
            sock.listen(1)
    except OSError as error:
        return error.errno in _ABSENT
    return True


def open_at(addr: str, port: int) -> socket.socket:
    """Return a socket bound to an address that is a number."""
    family = socket.AF_INET6 if ":" in addr else socket.AF_INET
    return _bound(family, (addr, port))


def _resolved(addr: str, port: int) -> tuple[int, tuple[object, ...]]:
    try:
        infos = socket.getaddrinfo(
            addr, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is no name of a host"
        raise BadConfig(f"addr {addr}: {why}") from None
    family, _, _, _, address = infos[0]
    return family, address


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
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

    def pause(self) -> None:
        """Leave new connections in the backlog until `go_on`."""
        self._loop.remove_reader(self._sock)

    def go_on(self) -> None:
        """Take connections again."""
        self._listen_again()

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
