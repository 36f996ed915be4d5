"""A connection to a host that stays open from request to request, each with a deadline."""

from __future__ import annotations

import contextlib
import http.client
import select
import signal
import socket
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import IO

import rq
from rq.kinds import HEADER, kind_of
from rq.outbound import connection
from rq.outbound.peers import Peer, Target
from rq.outbound.reply import Reply

CONNECT = 10.0  # seconds
STALL = 60.0  # no byte moves, or no answer comes after the last
PIECE = 1024 * 1024
MOST = 32  # connections that are kept
_BODY = 64 * 1024  # bytes


class Line:
    """A connection, opened when it is needed."""

    def __init__(self, to: Target, peer: Peer, most: int = _BODY) -> None:
        """`most`: bytes of an answer that are read."""
        self.knows_keys = (
            False  # the host honours idempotency keys; learned from an answer
        )
        self._to = to
        self._peer = peer
        self._patience = peer.timeout
        self._most = most
        self._host = connection.ascii_host(to)
        self._open = http.client.HTTPConnection(self._host, to.port, blocksize=PIECE)
        self._open.auto_open = 0  # to where `_connect` leads, and nowhere else
        if to.scheme == "https":
            self._open.default_port = http.client.HTTPS_PORT  # of the header Host
        self._headers = {"User-Agent": f"RQ/{rq.__version__}", **peer.login}

    def close(self) -> None:
        self._open.close()

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        line = self._ready()
        line.request(method, path, body, {**self._headers, **headers})
        return self.reply()

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Begin a request whose body is sent in pieces."""
        line = self._ready()
        line.putrequest(method, path)
        for name, value in {**self._headers, **headers}.items():
            line.putheader(name, value)
        line.endheaders()

    def send(self, piece: bytes | memoryview) -> None:
        self._open.send(piece)

    def send_file(self, file: IO[bytes], start: int, count: int) -> int:
        """Send a part of a file; return how many bytes there were."""
        return _socket(self._open).sendfile(file, start, count) if count else 0

    def reply(self) -> Reply:
        response = self._open.getresponse()
        body = response.read(self._most)
        if not response.isclosed():
            self.close()
        return Reply(response.status, body, kind_of(response.getheader(HEADER)))

    def _ready(self) -> http.client.HTTPConnection:
        """Return the connection, opened anew when the other side has hung up."""
        line = self._open
        if line.sock is not None and select.select([line.sock], [], [], 0)[0]:
            line.close()
        if line.sock is None:
            line.sock = self._connect()
            line.sock.settimeout(self._patience or STALL)
        return line

    def _connect(self) -> socket.socket:
        timeout = min(CONNECT, self._patience or CONNECT)
        context = connection.tls(self._peer) if self._to.scheme == "https" else None
        sock = connection.open_to(self._to, self._peer, timeout)
        if context is None:
            return sock
        return context.wrap_socket(sock, server_hostname=self._host)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Bound a whole step: an answer may also come a byte at a time. `seconds` is
        for a host of which nothing else is set."""
        seconds = self._patience or seconds

        def late(number: int, frame: FrameType | None) -> None:
            raise TimeoutError(f"no answer within {seconds:g} s")

        before = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            with self.guarded():
                yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Never use the connection again when something goes wrong on it."""
        try:
            yield
        except BaseException:
            self.close()
            raise


class Lines:
    """The connections of a worker, one for each host."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, Peer], Line] = {}

    def to(self, target: Target, peer: Peer) -> Line:
        key = target.peer, peer
        line = self._lines.pop(key, None) or Line(target, peer)
        self._lines[key] = line
        if len(self._lines) > MOST:
            self._lines.pop(next(iter(self._lines))).close()
        return line

    def close(self) -> None:
        for line in self._lines.values():
            line.close()


def _socket(line: http.client.HTTPConnection) -> socket.socket:
    sock = line.sock
    assert isinstance(sock, socket.socket)
    return sock
