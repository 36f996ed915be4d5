"""A connection to a host that stays open from request to request, each with a deadline."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rq.outbound import connection
from rq.outbound.connection import Connection
from rq.outbound.exchange import Reply
from rq.outbound.peers import Peer, Target

CONNECT = 10.0  # seconds
STALL = 60.0  # no byte moves, or no answer comes after the last
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
        self._headers = connection.headers(to, peer)
        self._open: Connection | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def request(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        self.begin(method, path, body, headers)
        return self.reply()

    def begin(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Connection:
        """Send a request; return what more of its body can be sent on."""
        if self._open is not None and not self._open.goes_on:
            self.close()
        if self._open is None:
            self._open = self._connected()
        self._open.begin(method, path, body, {**self._headers, **headers})
        return self._open

    def _connected(self) -> Connection:
        timeout = min(CONNECT, self._patience or CONNECT)
        sock = connection.open_to(self._to, self._peer, timeout)
        if self._to.scheme == "https":
            context = connection.tls(self._peer.ca)
            sock = connection.secured(sock, context, connection.ascii_host(self._to))
        return Connection(sock, self._patience or STALL)

    def reply(self) -> Reply:
        """Return the answer to the request that was begun."""
        assert self._open is not None
        head = self._open.head()
        body = self._open.read(self._most)
        if not self._open.goes_on:
            self.close()
        return replace(head, body=body)

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Bound a whole step. `seconds` is for a host of which nothing else is set."""
        with connection.within(self._patience or seconds), self.guarded():
            yield

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
