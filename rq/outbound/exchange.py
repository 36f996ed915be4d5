"""HTTP/1.1 on one connection, as bytes and values; pure. Everything that leaves this
machine over HTTP is said and heard here: the relay, webhooks, agents, Spark, the CLI.

h11 knows the protocol, who holds the connection moves the bytes. `begin` gives the bytes
of a request; its body is sent past here, so that a file can go by sendfile, and `sent`
counts it. `hear` takes what came in; `head` and `piece` return what it means, or None
while bytes are missing. So blocking sockets (`connection.Connection`) and asyncio
(`host.Host`) share all that is subtle:

- The body of an answer is whole only where its framing says so. A connection that ends
  before is HungUp, never the end of a file.
- `goes_on` is true only when both sides are done and no byte is left over: a byte that
  was not asked for would be taken for the next answer.
- What came instead of HTTP is in no sentence: it may be what a service says that the
  sender could not ask itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import h11

from rq.errors import BadInput
from rq.kinds import HEADER, Kind, kind_of

HEAD = 64 * 1024  # bytes of the head of an answer
_BEGINS = b"HTTP/1."
_ENDED = frozenset({h11.DONE, h11.MUST_CLOSE, h11.CLOSED})
_FRAMING = ("content-length", "transfer-encoding")
_NOT_HTTP = "what answers there does not speak HTTP"
_HUNG_UP = "it hung up before its answer was whole"


class NotHttp(OSError):
    """What answers does not speak HTTP."""


class HungUp(ConnectionResetError):
    """The connection has ended before the answer did."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or how it begins: its body is empty then."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    sent: float = 0.0  # when it was asked for, by the clock of who asked

    @property
    def kind(self) -> Kind | None:
        """Of a failure its kind, if it tells one."""
        return kind_of(self.headers.get(HEADER.lower()))

    @property
    def says_its_length(self) -> bool:
        """Whether its body ends before the connection does."""
        bare = self.status in (204, 304)
        return bare or not self.headers.keys().isdisjoint(_FRAMING)


class Exchange:
    """What is said on one connection: one request, and its answer, after the other."""

    def __init__(self) -> None:
        self._h11 = h11.Connection(h11.CLIENT, HEAD)
        self._to_send = 0  # bytes of the request's body
        self._is_closed = False  # by the other side

    # ---- the request

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """Return the head of a request. A body is as long as Content-Length says."""
        if self._h11.our_state is h11.DONE:
            self._h11.start_next_cycle()
        pairs = [
            (name.encode(), value.encode("latin-1")) for name, value in headers.items()
        ]
        try:
            request = h11.Request(method=method, target=path, headers=pairs)
        except (h11.LocalProtocolError, UnicodeError):
            raise BadInput(f"{path!r:.200} cannot be asked for over HTTP") from None
        head = self._h11.send(request)
        self._to_send = int(headers.get("Content-Length", 0))
        self._end_if_sent()
        return head

    def sent(self, count: int) -> None:
        """Take note that so many bytes of the body were sent."""
        if count:
            piece = cast(bytes, range(count))  # the bytes themselves go past h11
            self._h11.send_with_data_passthrough(h11.Data(data=piece))
            self._to_send -= count
            self._end_if_sent()

    def _end_if_sent(self) -> None:
        if not self._to_send:
            self._h11.send(h11.EndOfMessage())

    # ---- the answer

    def hear(self, data: bytes) -> None:
        """Take bytes of the other side; none when it has closed the connection."""
        self._is_closed = not data
        self._h11.receive_data(data)

    def head(self) -> Reply | None:
        """Return how the answer begins; HungUp, NotHttp."""
        event = self._next()
        while type(event) is h11.InformationalResponse:
            event = self._next()
        if isinstance(event, h11.Response):
            pairs = ((name, value.decode("latin-1")) for name, value in event.headers)
            headers = {name.decode(): value for name, value in pairs}
            return Reply(event.status_code, headers=headers)
        heard = self._h11.trailing_data[0]
        if not heard.startswith(_BEGINS[: len(heard)]):
            raise NotHttp(_NOT_HTTP)  # h11 would wait for the end of the head
        return None

    def piece(self) -> bytes | None:
        """Return more of the answer's body, b"" at its end and behind it; HungUp, NotHttp."""
        if self._h11.their_state in _ENDED:
            return b""
        event = self._next()
        if isinstance(event, h11.Data):
            return event.data
        return b"" if isinstance(event, h11.EndOfMessage) else None

    @property
    def goes_on(self) -> bool:
        """Whether another request may follow."""
        states = {self._h11.our_state, self._h11.their_state}
        return states == {h11.DONE} and not self._h11.trailing_data[0]

    def _next(self) -> object:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError:
            if self._is_closed:
                raise HungUp(_HUNG_UP) from None
            raise NotHttp(_NOT_HTTP) from None


def phrase(status: int) -> str:
    """Return a status as people know it, in our words and not in those that came.

    >>> [phrase(status) for status in (404, 799)]
    ['404 Not Found', '799']
    """
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
