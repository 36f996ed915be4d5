"""HTTP to one host, for a program that asks many things at a time.

Connections are kept from request to request. Each request has a deadline, and each
answer a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import rq
from rq.errors import BadInput, NotWhole, Unreachable
from rq.outbound import connection
from rq.outbound.peers import Peer, Target
from rq.work import terms

HEAD = 64 * 1024  # bytes of the head of an answer
BODY = 64 * 1024 * 1024  # bytes of an answer that is kept in memory
CONNECT = 10.0  # seconds
KEPT = 8  # connections that wait for the next request
_PIECE = 256 * 1024
_PROBLEM = 64 * 1024  # bytes of an answer where a file was asked for, and there is none
_STATUS = re.compile(r"[1-9][0-9]{2}(?: |$)")

Sink = Callable[[bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of a host."""

    method: str
    path: str  # with the prefix of the host, and what comes behind the ?
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: float = 30.0  # seconds for the whole of it
    most: int = BODY  # bytes of the answer's body
    # Returns what takes the body of a 200 piece by piece; called anew at each try.
    sink: Callable[[], Sink] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a host has answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # empty if a sink took it
    sent: float  # when the request was sent, as `terms.now` gives it


class _Stale(Exception):
    """A kept connection was closed by the other side before it answered."""


class _NotTaken(Exception):
    """The sink of an answer has failed, which is no fault of the host's."""

    def __init__(self, why: OSError) -> None:
        self.why = why


class _TooMuch(Exception):
    """An answer is larger than it may be."""


class Http:
    """The connections to a host."""

    def __init__(self, to: Target, peer: Peer) -> None:
        self._to = to
        self._peer = peer
        self._host = connection.ascii_host(to)
        self._tls = connection.tls(peer) if to.scheme == "https" else None
        self._idle: list[_Connection] = []
        self._headers = {
            "Host": to.place,
            "User-Agent": f"RQ/{rq.__version__}",
            "Accept": "application/json",
            **peer.login,
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
        except EOFError:
            raise self._no_answer("it hung up before its answer was whole") from None
        except OSError as error:
            raise self._no_answer(error.strerror or str(error)) from None
        except (BadInput, asyncio.LimitOverrunError) as error:
            raise self._no_answer(f"what answers is no RQ: {error}") from None

    def _no_answer(self, why: str) -> Unreachable:
        return Unreachable(f"{self._to.peer}: {why}")

    async def _ask(self, request: Request) -> Reply:
        """Ask on a kept connection, and on a new one if that was closed meanwhile: all
        that an agent asks may be asked twice."""
        while self._idle:
            with contextlib.suppress(_Stale):
                return await self._ask_on(self._idle.pop(), request)
        return await self._ask_on(await self._connect(), request)

    async def _ask_on(self, line: _Connection, request: Request) -> Reply:
        is_whole = False
        try:
            reply, goes_on = await line.ask(request, self._headers)
            is_whole = goes_on and len(self._idle) < KEPT
        finally:
            if not is_whole:
                line.close()
        if is_whole:
            self._idle.append(line)
        return reply

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        sock = await loop.run_in_executor(
            None, connection.open_to, self._to, self._peer, CONNECT
        )
        sock.setblocking(False)
        name = self._host if self._tls else None
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
        self._is_new = True

    def close(self) -> None:
        self._writer.close()

    async def ask(
        self, request: Request, headers: Mapping[str, str]
    ) -> tuple[Reply, bool]:
        """Return the answer, and whether another request may follow; _Stale when an old
        connection was closed instead. BadInput when it is no HTTP."""
        sent = terms.now()
        was_new, self._is_new = self._is_new, False
        try:
            self._writer.write(_head(request, headers) + request.body)
            await self._writer.drain()
            status, found_headers = await self._read_head()
        except (OSError, asyncio.IncompleteReadError):
            if was_new:
                raise
            raise _Stale from None
        body = bytearray()
        is_file = request.sink is not None and status == 200
        sink = request.sink() if request.sink and is_file else body.extend
        goes_on = found_headers.get("connection", "").lower() != "close"
        most = request.most if is_file or request.sink is None else _PROBLEM
        if status not in (204, 304):
            try:
                await self._read_body(found_headers, most, sink)
            except _TooMuch:
                failure = NotWhole if is_file else BadInput
                raise failure("its answer is larger than it may be") from None
        reply = Reply(status=status, headers=found_headers, body=bytes(body), sent=sent)
        return reply, goes_on

    async def _read_head(self) -> tuple[int, dict[str, str]]:
        while True:
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            version, _, rest = first.partition(" ")
            if not version.startswith("HTTP/1.") or not _STATUS.match(rest):
                raise BadInput("it does not speak HTTP/1.1")
            status = int(rest[:3])
            if status >= 200:
                pairs = (line.partition(":") for line in lines if line)
                return status, {k.strip().lower(): v.strip() for k, _, v in pairs}

    async def _read_body(
        self, headers: Mapping[str, str], most: int, sink: Sink
    ) -> None:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := await self._chunk_size():
                most = await self._pass_on(size, most, sink)
                await self._reader.readexactly(2)
            await self._reader.readuntil(b"\r\n")
            return
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise BadInput("its answer does not say how long it is")
        await self._pass_on(int(length), most, sink)

    async def _chunk_size(self) -> int:
        text = (await self._reader.readuntil(b"\r\n")).partition(b";")[0].strip()
        try:
            size = int(text, 16)
        except ValueError:
            size = -1
        if size < 0 or len(text) > 16:
            raise BadInput("a chunk of its answer has no length")
        return size

    async def _pass_on(self, size: int, most: int, sink: Sink) -> int:
        """Read `size` bytes; return how many more may come."""
        if size > most:
            raise _TooMuch
        left = size
        while left:
            data = await self._reader.read(min(left, _PIECE))
            if not data:
                raise EOFError("it hung up in the middle of an answer")
            left -= len(data)
            try:
                sink(data)
            except OSError as error:
                raise _NotTaken(error) from None
        return most - size


def _head(request: Request, headers: Mapping[str, str]) -> bytes:
    lines = [f"{request.method} {request.path} HTTP/1.1"]
    whole = {**headers, **request.headers}
    if request.body or request.method not in ("GET", "DELETE"):
        whole["Content-Length"] = str(len(request.body))
    lines += [f"{name}: {value}" for name, value in whole.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
