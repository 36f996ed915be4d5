"""Plain sockets of many clients, at less cost than asyncio takes for a transport of each.

All are in one epoll, which the loop watches as it watches one socket: what has come on
any of them is read in one go, between `before` and `after`.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from rq.logs import fields

IS_HERE = hasattr(select, "epoll")  # else asyncio's own transports have to do
_AT_ONCE = 256  # sockets until others on the loop have their turn
_SLICE = 0.01  # seconds for the same, beside the last of them

log = logging.getLogger(__name__)


class Sockets:
    """The sockets that are read together."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        before: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._before = before
        self._after = after
        self._epoll = select.epoll()
        self._by_fd: dict[int, SocketTransport] = {}
        self._ready: deque[tuple[int, int]] = deque()  # what epoll has told
        loop.add_reader(self._epoll, self._go_on)

    def serve(self, sock: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
        """Connect a socket, which does not block, with its protocol."""
        transport = SocketTransport(sock, protocol, self)
        protocol.connection_made(transport)
        transport.resume_reading()

    def close(self) -> None:
        """Read and write no more; what is left to be said of sockets that end is said."""
        self._loop.remove_reader(self._epoll)
        self._epoll.close()

    def _go_on(self) -> None:
        """Those that are left come first in the next turn: epoll, asked again, would
        begin with the same ones, and a busy client would be all that is served."""
        self._before()
        try:
            if not self._ready:
                self._ready.extend(self._epoll.poll(0, _AT_ONCE))
            until = time.monotonic() + _SLICE
            while self._ready and time.monotonic() < until:
                fd, events = self._ready.popleft()
                transport = self._by_fd.get(fd)
                if transport is not None:  # one that was read before may have ended it
                    transport.go_on(events)
        finally:
            self._after()

    def watch(self, transport: SocketTransport, fd: int, before: int, now: int) -> None:
        """Look for other events of a socket than before; 0: for none."""
        if self._epoll.closed:
            return
        if not now:
            del self._by_fd[fd]
            self._epoll.unregister(fd)
        elif before:
            self._epoll.modify(fd, now)
        else:
            self._by_fd[fd] = transport
            self._epoll.register(fd, now)

    def later(self, what: Callable[[], None]) -> None:
        """Call something when all that goes on now is done."""
        self._loop.call_soon(what)


class SocketTransport(asyncio.Transport):
    """One of them; as asyncio's, it tells of the end once, and never within a call."""

    def __init__(
        self, sock: socket.socket, protocol: asyncio.BufferedProtocol, all_: Sockets
    ) -> None:
        super().__init__({"socket": sock})
        self._sock = sock
        self._protocol = protocol
        self._all = all_
        self._events = 0  # that are looked for
        self._kept = bytearray()  # to be written
        self.sent = 0  # bytes that the kernel has taken
        self._high, self._low = 65536, 16384
        self._is_full = False  # the protocol was told to pause
        self._is_closing = self._is_over = False

    # ---- reading

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._watch(self._events | select.EPOLLIN)

    def pause_reading(self) -> None:
        self._watch(self._events & ~select.EPOLLIN)

    def is_reading(self) -> bool:
        return bool(self._events & select.EPOLLIN)

    def go_on(self, events: int) -> None:
        """Read and write what can be, as epoll says."""
        try:
            if events & ~select.EPOLLOUT and self.is_reading():
                self._read()
            if events & ~select.EPOLLIN and self._kept:
                self._write_on()
        except Exception as error:
            log.exception("a client is sent away: %s", fields(reason=error))
            self._end(error)

    def _read(self) -> None:
        try:
            size = self._sock.recv_into(self._protocol.get_buffer(-1))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if size:
            self._protocol.buffer_updated(size)
        else:
            self.close()

    # ---- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_over:
            return
        if not self._kept:
            sent = self._send(data)
            if sent == len(data) or self._is_over:
                return
            data = data[sent:]
        self._kept += data
        self._watch(self._events | select.EPOLLOUT)
        if len(self._kept) > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def _send(self, data: bytes | bytearray | memoryview) -> int:
        """Return how many bytes the kernel takes."""
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._end(error)
            return 0
        self.sent += sent
        return sent

    def _write_on(self) -> None:
        sent = self._send(self._kept)
        if self._is_over:
            return
        del self._kept[:sent]
        if not self._kept:
            self._watch(self._events & ~select.EPOLLOUT)
        if self._is_full and len(self._kept) <= self._low:
            self._is_full = False
            self._protocol.resume_writing()
        if self._is_closing and not self._kept:
            self._end(None)

    def get_write_buffer_size(self) -> int:
        return len(self._kept)

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        self._high = 65536 if high is None else high
        self._low = self._high // 4 if low is None else low

    # ---- the end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self.pause_reading()
        if not self._kept:
            self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._is_over:
            return
        self._is_closing = self._is_over = True
        self._kept.clear()
        self._watch(0)
        self._all.later(lambda: self._over(error))

    def _over(self, error: Exception | None) -> None:
        self._protocol.connection_lost(error)
        self._sock.close()

    def _watch(self, events: int) -> None:
        if events != self._events:
            before, self._events = self._events, events
            self._all.watch(self, self._sock.fileno(), before, events)
