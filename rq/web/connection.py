"""One connection of the web: gunicorn's, with bounds on what its client may cost others.

It may not decide who is let in; it tells every request what the kernel says of the other
end, as `scope["rq.uid"]`, and when that has gone, as `scope["rq.lost"]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers.gasgi import ASGIWorker

from rq.access import kernel
from rq.errors import RQError
from rq.proc.slices import Slice
from rq.web.visitors import Visitor, Visitors

HEAD_TIME = 10  # seconds for the head of a request, whatever comes meanwhile
HEAD_SIZE = 64 * 1024  # bytes of a head; more than any browser or proxy sends
_SLICE = 2048  # bytes that are read at a time, where each may cost a step of Python
_TURN = 0.002  # seconds for what one client sent, before others have their turn
_TLS_ADMITTED = 256 * 1024  # bytes read at a time from a client that was let in
_PIECE = 16 * 1024  # bytes of a body that are handed on in one, if they are there
STALL_TIME = 300  # seconds until a client is left that takes nothing of an answer
_BYTES_ACKED = slice(120, 128)  # of struct tcp_info
UID = "rq.uid"  # in a request's scope: uid of the other end; None: not known
LOST = "rq.lost"  # in the scope: an event that is set when the client has gone
# In the scope: a list of what to call, and wait for, if the client has gone before it
# could be answered: what the answer hands out goes back.
TAKE_BACK = "rq.take_back"
_START = "http.response.start"
ADMITTED = "rq.admitted"  # in the scope: a function to call once the client is let in

Scope: TypeAlias = dict[str, Any]  # and messages, as ASGI has them
Receive: TypeAlias = Callable[[], Awaitable[Scope]]
Send: TypeAlias = Callable[[Scope], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Connection(ASGIProtocol):
    """gunicorn's protocol, whose methods are called at the steps of a connection's life.

    It waits (for a head, or to be let in) or it answers; only one that waits may be ended
    for another. So strangers, who could send a body for hours, keep no client out.
    """

    def __init__(
        self, worker: ASGIWorker, visitors: Visitors, visitor: Visitor
    ) -> None:
        super().__init__(worker)
        self._visitors = visitors
        self._visitor = visitor
        self._inner: Asgi = worker.asgi
        self.app: Asgi = self._answer
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_begun = False
        self._head_size = 0
        self._ahead = b""  # what has come and was not read yet
        self._going_on = False
        self._progress_timer: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[UID] = self._visitor.uid
        # As it was accepted: the socket of a connection that was reset no longer tells it.
        scope["client"] = self._visitor.client
        scope[ADMITTED] = self._admit
        scope[LOST] = self._lost
        take_back: list[Callable[[], Awaitable[object]]] = []
        scope[TAKE_BACK] = take_back

        async def send_if_there(message: Scope) -> None:
            if take_back and message["type"] == _START and not self._is_there():
                self._close_transport()  # nothing of the answer leaves
                for call in take_back:
                    with contextlib.suppress(RQError):  # its owner finds out by itself
                        await call()
            await send(message)

        await self._inner(scope, receive, send_if_there)

    def _is_there(self) -> bool:
        """Whether the client can still be answered. It may have hung up in the turn in
        which what it waits for came, and its end may not be read yet."""
        if self._closed or self._lost.is_set() or self.transport.is_closing():
            return False
        return not kernel.has_ended(self._visitor.sock)

    def _admit(self) -> None:
        """Note that the client was let in: it may send much, and need not give way."""
        self._visitors.answers(self._visitor)
        if tls := getattr(self.transport, "_ssl_protocol", None):
            tls.max_size = _TLS_ADMITTED

    # ---- steps that gunicorn calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._expect_head()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take what has come, behind what came before and was not read yet."""
        if self._ahead:
            self._ahead += data
        else:
            super().data_received(data)

    def _feed_callback_parser(self, data: bytes) -> bool:
        """Read bytes of a head, of a body, or requests sent ahead."""
        self._ahead = data + self._ahead
        return self._read_on()

    def _read_on(self) -> bool:
        """Read what is there, or as much as there is time for: a quarter of a megabyte
        of chunks of a byte each takes a fifth of a second."""
        turn = Slice(_TURN)
        data, at = self._ahead, 0
        while at < len(data) and (at == 0 or not turn.is_over):
            piece = data[at:] if self._is_cheap() else data[at : at + _SLICE]
            at += len(piece)
            if not self._read(piece):
                self._ahead = b""
                return False
        self._ahead = data[at:]
        if self._ahead:
            self._pause_reading()
            # While the application holds back, gunicorn calls when it takes more.
            if self._body_receiver is None or not self._body_receiver.buffered:
                self._go_on_later()
        return True

    def _go_on_later(self) -> None:
        if not self._going_on:
            self._going_on = True
            self.worker.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = False
        if not self._closed and self._read_on() and not self._ahead:
            self._resume_reading()

    def _is_cheap(self) -> bool:
        """Whether gunicorn only keeps what it is given, however much."""
        request, parser = self._current_request, self._callback_parser
        return request is not None and (not request.chunked or _is_whole(parser))

    def _read(self, data: bytes) -> bool:
        if self._current_request is None:
            self._head_size += len(data)
        try:
            goes_on = bool(super()._feed_callback_parser(data))
        except ValueError:  # of a Content-Length with more digits than Python reads
            self._send_error_response(400, "The head of the request makes no sense.\n")
            self._close_transport()
            return False
        if goes_on and self._current_request is None:
            if self._head_size > HEAD_SIZE:
                text = f"The head of a request may have {HEAD_SIZE} bytes at most.\n"
                self._send_error_response(431, text)
                self._close_transport()
                return False
            # One byte now and then must not put the end off: the first one counts.
            self._head_begun = True
            if self._head_timer is None:
                self._expect_head()
        return goes_on

    def _on_headers_complete(self) -> bool:
        self._forget_head()
        return bool(super()._on_headers_complete())

    def _resume_reading(self) -> None:
        """Receive more, unless much was sent ahead: gunicorn would for each request that
        it answers, and hold in memory whatever a client can send meanwhile."""
        if self._ahead:
            self._go_on_later()
        elif self._http1_buffered() <= self._max_buffer_size:
            super()._resume_reading()

    def _on_body(self, chunk: bytes) -> None:
        """Join what is small: the application takes each piece by itself."""
        receiver = self._body_receiver
        waiting = receiver._chunks
        if waiting and len(waiting[-1]) + len(chunk) <= _PIECE:
            waiting[-1] += chunk
            receiver._buffered += len(chunk)
        else:
            super()._on_body(chunk)

    async def _serve_http_request(self, *request: object) -> bool:
        """Answer once the client takes what it asked for before: answers without a body,
        to HEAD, are written by gunicorn whether or not anybody takes them."""
        await self._flow_control.drain()
        return bool(await super()._serve_http_request(*request))

    def _arm_keepalive_timer(self) -> None:
        """Wait for the next request; the last answer may still be on its way."""
        if not self._flow_control.write_paused:
            self._visitors.waits(self._visitor)
        super()._arm_keepalive_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_progress()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._awaiting_request:
            self._visitors.waits(self._visitor)

    async def _handle_websocket(self, *_: object) -> None:
        """Refuse a handshake before anything is read as WebSocket frames."""
        self._send_error_response(400, "RQ does not speak WebSocket; use HTTP.\n")
        self._close_transport()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._visitors.leave(self._visitor)
        self._lost.set()
        super().connection_lost(exc)
        # They know each other: what they hold would stay until Python looks for such.
        self._ahead, self._callback_parser = b"", None
        if self._request_ready is not None:
            self._request_ready.set()  # wakes the task that waits for a head

    # ---- ends

    def _expect_head(self) -> None:
        self._head_timer = self.worker.loop.call_later(HEAD_TIME, self._end_waiting)

    def _forget_head(self) -> None:
        self._head_begun = False
        self._head_size = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_waiting(self) -> None:
        """Close: the head did not come in time. A client that sent nothing gets no answer."""
        self._head_timer = None
        if self._head_begun:
            text = f"The head of the request did not come within {HEAD_TIME} s.\n"
            self._send_error_response(408, text)
        self._close_transport()
        self._request_ready.set()

    def _close_transport(self) -> None:
        """Close, once the client has what is left for it."""
        if not self._closed:
            super()._close_transport()
            self._watch_progress()

    def _watch_progress(self) -> None:
        """Begin to look whether the client takes what is left for it, if anything is."""
        if self._progress_timer is None and self.transport.get_write_buffer_size():
            self._look_again()

    def _look_again(self) -> None:
        taken = _taken(self._visitor.sock)
        self._progress_timer = self.worker.loop.call_later(
            STALL_TIME, self._check_progress, taken
        )

    def _check_progress(self, taken_before: int) -> None:
        """End a connection whose client takes nothing; gunicorn would wait for it
        without end."""
        self._progress_timer = None
        if not self.transport.get_write_buffer_size():
            return
        if _taken(self._visitor.sock) == taken_before:
            self.transport.abort()
        else:
            self._look_again()


def _is_whole(parser: Any) -> bool:  # of gunicorn; they have no common type
    return bool(parser.is_complete)


def _taken(sock: socket.socket) -> int:
    """Return how many bytes the other end's kernel has taken so far; without Linux,
    another number at each call."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
        return int.from_bytes(info[_BYTES_ACKED], sys.byteorder)
    except (OSError, AttributeError):
        return time.monotonic_ns()
