"""A host that is asked many things at a time, by a program that runs on asyncio.

Connections are kept from request to request. Each request has a deadline, and each
answer a bound. What is asked here may be asked twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rq.errors import BadInput, NotWhole, Unreachable
from rq.outbound import connection
from rq.outbound.connection import PIECE
from rq.outbound.exchange import HEAD, Exchange, Reply
from rq.outbound.peers import Peer, Target

BODY = 64 * 1024 * 1024  # bytes of an answer that is kept in memory
CONNECT = 10.0  # seconds
KEPT = 8  # connections that wait for the next request
_PROBLEM = 64 * 1024  # bytes of an answer where a file was asked for, and there is none

Sink = Callable[[bytes], object]
_Event = TypeVar("_Event")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a host."""

    method: str
    path: str  # with the prefix of the host, and what comes behind the ?
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: float = 30.0  # seconds for the whole of it
    most: int = BODY  # bytes of the answer's body
    # Returns what takes the body of a 200 piece by piece; called again at each try.
    sink: Callable[[], Sink] | None = None


class _Stale(Exception):
    """A kept connection was closed by the other side before it answered."""


class _NotTaken(Exception):
    """The sink of an answer has failed, which is no fault of the host's."""

    def __init__(self, why: OSError) -> None:
        self.why = why


class Host:
    """The connections to a host."""

    def __init__(self, to: Target, peer: Peer, clock: Callable[[], float]) -> None:
        """`clock` says when a request was sent."""
        self._to = to
        self._peer = peer
        self._clock = clock
        self._tls = connection.tls(peer.ca) if to.scheme == "https" else None
        self._idle: list[_Connection] = []
        self._headers = {
            **connection.headers(to, peer),
            "Accept": "application/json",
        }

    async def ask(self, request: Request) -> Reply:
        """Return the answer; Unreachable says why there is none, NotAllowed why nothing
        was asked. Where a sink takes the answer: OSError when it cannot, NotWhole when
        there is more than there may be."""
        try:
            async with asyncio.timeout(request.patience):
                return await self._ask(request)
        except _NotTaken as error:
            raise error.why from None
        except TimeoutError:
            raise self._no_answer(f"no answer within {request.patience:g} s") from None
        except OSError as error:
            raise self._no_answer(connection.reason(error)) from None
        except BadInput as error:
            raise self._no_answer(f"what answers is no RQ: {error}") from None

    def _no_answer(self, why: str) -> Unreachable:
        return Unreachable(f"{self._to.peer}: {why}")

    async def _ask(self, request: Request) -> Reply:
        """Ask on a kept connection, and on a new one if that was closed meanwhile."""
        while self._idle:
            with contextlib.suppress(_Stale):
                return await self._ask_on(self._idle.pop(), request)
        return await self._ask_on(await self._connect(), request)

    async def _ask_on(self, line: _Connection, request: Request) -> Reply:
        sent = self._clock()
        try:
            head = await line.begin(request, self._headers)
            body = await line.body(request, head)
        except BaseException:
            line.close()
            raise
        if line.goes_on and len(self._idle) < KEPT:
            self._idle.append(line)
        else:
            line.close()
        return replace(head, body=body, sent=sent)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        sock = await loop.run_in_executor(
            None, connection.open_to, self._to, self._peer, CONNECT
        )
        sock.setblocking(False)
        name = connection.ascii_host(self._to) if self._tls else None
        try:
            reader, writer = await asyncio.open_connection(
                sock=sock, ssl=self._tls, server_hostname=name, limit=HEAD
            )
        except BaseException:
            sock.close()
            raise
        return _Connection(reader, writer)

    def close(self) -> None:
        """Close the connections that wait for a request."""
        for line in self._idle:
            line.close()
        self._idle.clear()


class _Connection:
    """One connection, with one request at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._exchange = Exchange()
        self._is_new = True

    def close(self) -> None:
        self._writer.close()

    @property
    def goes_on(self) -> bool:
        """Whether another request may follow."""
        return self._exchange.goes_on

    async def begin(self, request: Request, headers: Mapping[str, str]) -> Reply:
        """Ask, and return how the answer begins; _Stale when an old connection was
        closed instead."""
        was_new, self._is_new = self._is_new, False
        fields, body = {**headers, **request.headers}, request.body
        if body or request.method not in ("GET", "DELETE"):
            fields["Content-Length"] = str(len(body))
        try:
            head = self._exchange.begin(request.method, request.path, fields)
            self._writer.write(head + body)
            self._exchange.sent(len(body))
            await self._writer.drain()
            return await self._heard(self._exchange.head)
        except OSError:
            if was_new:
                raise
            raise _Stale from None

    async def body(self, request: Request, head: Reply) -> bytes:
        """Read the body of an answer; return it, or b"" where a sink has taken it."""
        if not head.says_its_length:
            raise BadInput("its answer does not say how long it is")
        if request.sink is None:
            return await self._kept(request.most)
        if head.status != 200:
            return await self._kept(_PROBLEM)
        await self._passed_on(request.sink(), request.most)
        return b""

    async def _kept(self, most: int) -> bytes:
        body = bytearray()
        while piece := await self._heard(self._exchange.piece):
            body += piece
            if len(body) > most:
                raise BadInput("its answer is larger than it may be")
        return bytes(body)

    async def _passed_on(self, sink: Sink, most: int) -> None:
        count = 0
        while piece := await self._heard(self._exchange.piece):
            count += len(piece)
            if count > most:
                raise NotWhole("its answer is larger than it may be")
            try:
                sink(piece)
            except OSError as error:
                raise _NotTaken(error) from None

    async def _heard(self, find: Callable[[], _Event | None]) -> _Event:
        while (event := find()) is None:
            self._exchange.hear(await self._reader.read(PIECE))
        return event
