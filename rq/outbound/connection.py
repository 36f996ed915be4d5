"""One connection to an address that was judged: where it may go, how it is verified, and
what is asked on it, in steps that block."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import IO, TypeVar

import rq
from rq import names
from rq.errors import BadConfig, BadInput, Refused
from rq.outbound import addresses, peers
from rq.outbound.addresses import Internal, Place
from rq.outbound.exchange import Exchange, Reply
from rq.outbound.peers import Peer, Target

PIECE = 256 * 1024  # bytes that are read at a time
_Event = TypeVar("_Event")

_IN_CLEAR = (
    "no password or token goes to {peer} over plain HTTP, where others can read it: use "
    'https, or set "insecure": true for it in config/peers.json (`rq work`: --insecure)'
)


class NotAllowed(Refused):
    """Nothing was sent, and a person has to allow it first."""


def open_to(to: Target, peer: Peer, timeout: float) -> socket.socket:
    """Return a connection to a host, at an address where it may be asked, without TLS;
    OSError, or NotAllowed when there is no such address. `timeout` is in seconds."""
    return connect(_places(to, peer), timeout)


def _places(to: Target, peer: Peer) -> list[Place]:
    try:
        places = addresses.find(ascii_host(to), to.port, peer.allow)
    except Internal as error:
        text = f"{error}: `rq relay allow {to.place}` lets RQ send there"
        raise NotAllowed(text) from None
    if to.scheme == "https" or not peer.login or peer.insecure:
        return places
    if inside := [place for place in places if addresses.is_loopback(place)]:
        return inside
    raise NotAllowed(_IN_CLEAR.format(peer=to.peer))


def ascii_host(to: Target) -> str:
    """Return a host as it is asked for; BadInput when it can be none."""
    try:
        return to.host.encode("idna").decode()
    except UnicodeError:
        raise BadInput(f"{to.host!r:.80} cannot be a host") from None


def tls(ca: str | None, file: str = "peers.json") -> ssl.SSLContext:
    """Return how a host is verified. `ca` is a file of further certificate authorities,
    which a file of the config names."""
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except OSError as error:
            raise BadConfig(f"{file}: ca {ca}: {error}") from None
    return context


def connect(places: Sequence[Place], timeout: float) -> socket.socket:
    """Return a connection to the first of `places` that answers; OSError. None of them
    may use up the time of the others; `timeout` is in seconds, for all."""
    deadline = time.monotonic() + timeout
    failed: OSError = OSError("no address")
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            break
        try:
            sock = _connected(place, seconds / left)
        except OSError as error:
            failed = error
        else:
            sock.settimeout(timeout)
            return sock
    raise failed


def _connected(place: Place, timeout: float) -> socket.socket:
    family, address = place
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def secured(sock: socket.socket, context: ssl.SSLContext, host: str) -> socket.socket:
    """Return a connection with TLS on another, which is closed if that fails."""
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def headers(to: Target, peer: Peer) -> dict[str, str]:
    """Return what each request to a host says of it, and of who asks."""
    usual = peers.USUAL[to.scheme] == to.port
    return {
        "Host": names.host_port(ascii_host(to), None if usual else to.port),
        "User-Agent": f"RQ/{rq.__version__}",
        "Accept-Encoding": "identity",
        **peer.login,
    }


class Connection:
    """HTTP on a socket, one request after the other. OSError when the host is lost, and
    when `seconds` pass between two bytes."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        sock.settimeout(seconds)
        self._sock = sock
        self._exchange = Exchange()
        self._body = bytearray()  # of the answer, not read yet

    def close(self) -> None:
        self._sock.close()

    def begin(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        """Send a request; with None, its body follows if Content-Length says so."""
        if body is not None:
            headers = {**headers, "Content-Length": str(len(body))}
        body = body or b""
        self._sock.sendall(self._exchange.begin(method, path, headers) + body)
        self._exchange.sent(len(body))

    def send(self, piece: bytes | memoryview) -> None:
        """Send more of the body."""
        self._sock.sendall(piece)
        self._exchange.sent(len(piece))

    def send_file(self, file: IO[bytes], start: int, count: int) -> int:
        """Send a part of a file as more of the body; return how many bytes it had."""
        sent = self._sock.sendfile(file, start, count) if count else 0
        self._exchange.sent(sent)
        return sent

    def head(self) -> Reply:
        """Return how the answer begins."""
        return self._heard(self._exchange.head)

    def read(self, size: int) -> bytes:
        """Return so many bytes of the answer's body, fewer only at its end."""
        while len(self._body) < size:
            piece = self._heard(self._exchange.piece)
            if not piece:
                break
            self._body += piece
        data = bytes(self._body[:size])
        del self._body[:size]
        return data

    def _heard(self, find: Callable[[], _Event | None]) -> _Event:
        while (event := find()) is None:
            self._exchange.hear(self._sock.recv(PIECE))
        return event

    @property
    def goes_on(self) -> bool:
        """Whether another request may follow, and the other side has not hung up."""
        if self._body or not self._exchange.goes_on:
            return False
        return not select.select([self._sock], [], [], 0)[0]


class _Late(Exception):
    """The time is over; no OSError, so that nothing takes it for a lost address."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bound a whole step, in the main thread: an answer may also come a byte at a time.
    TimeoutError."""

    def late(number: int, frame: FrameType | None) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Late:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    finally:
        signal.signal(signal.SIGALRM, before)


def reason(error: OSError) -> str:
    """Return why there was no answer."""
    return error.strerror or str(error) or type(error).__name__
