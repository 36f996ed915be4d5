"""A connection to the control socket: frames in, replies out in order, descriptors too.

Bare sockets on the loop, not asyncio's streams: a request costs one recvmsg and one
send, and passed descriptors arrive with the bytes they came with.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable

import orjson

from rq import proc, wire
from rq.errors import BadInput

REQUEST_LIMIT = 2 * 1024 * 1024  # bytes
_READ = 256 * 1024
_MAX_FDS = 16
_ANCILLARY = socket.CMSG_SPACE(_MAX_FDS * 4)
_BACKLOG = 64 * 1024 * 1024  # bytes of replies that an asker may leave untaken


class Slot:
    """The place of one reply in the order of a connection's replies."""

    __slots__ = ("connection", "data")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data: bytes | None = None


class Connection:
    """One asker."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_request: Callable[[Connection, bytes], None],
        on_close: Callable[[Connection], None],
        now: Callable[[], float],
    ) -> None:
        self.peer = proc.peer_of(sock)
        self.partial_since: float | None = None
        self.minded = False  # whoever holds it is this process's parent
        self.closed = False
        self._sock = sock
        self._loop = loop
        self._on_request = on_request
        self._on_close = on_close
        self._now = now
        self._frames = wire.Frames(limit=REQUEST_LIMIT)
        self._slots: deque[Slot] = deque()
        self._out = b""
        self._writing = False
        self._reading = True
        self._closing = False
        self._fds: list[int] = []
        loop.add_reader(sock, self._readable)

    # ---- in

    def _readable(self) -> None:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(
                _READ, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if ancillary:
            self._take_fds(ancillary)
        if not data:
            self._end()
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            payloads = self._frames.feed(data)
        except BadInput as error:
            self.refuse(str(error))
            return
        for payload in payloads:
            self._on_request(self, payload)
        if self._frames.partial:
            if payloads or self.partial_since is None:
                self.partial_since = self._now()
        else:
            self.partial_since = None

    def _end(self) -> None:
        """The asker says no more; it still gets the answers to what it asked."""
        if self._slots or self._out:
            self.pause()
            self._closing = True
        else:
            self.close()

    def _take_fds(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)
        for fd in self._fds[_MAX_FDS:]:
            os.close(fd)
        del self._fds[_MAX_FDS:]

    def take_fd(self) -> int | None:
        """Return the oldest descriptor that was passed; the caller closes it."""
        return self._fds.pop(0) if self._fds else None

    def pause(self) -> None:
        """Take no more requests for now."""
        if self._reading and not self.closed:
            self._loop.remove_reader(self._sock)
            self._reading = False

    def resume(self) -> None:
        if not self._reading and not self.closed and not self._closing:
            self._loop.add_reader(self._sock, self._readable)
            self._reading = True

    # ---- out

    def slot(self) -> Slot:
        """Reserve the place of the next reply."""
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def send_ready(self) -> None:
        """Send the replies that are there, up to the first that is not."""
        if self.closed:
            return
        slots = self._slots
        if len(slots) == 1 and slots[0].data is not None and not self._out:
            out = slots.popleft().data or b""
        else:
            ready = []
            while slots and slots[0].data is not None:
                ready.append(slots.popleft().data or b"")
            out = b"".join([self._out, *ready])
        self._send(out)

    def _send(self, out: bytes) -> None:
        try:
            sent = self._sock.send(out) if out else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._out = out[sent:]
        if self._out and not self._writing:
            self._loop.add_writer(self._sock, self.send_ready)
            self._writing = True
        elif not self._out and self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False
        if len(self._out) > _BACKLOG or (
            self._closing and not self._out and not self._slots
        ):
            self.close()

    def refuse(self, text: str) -> None:
        """Answer with an error and hang up."""
        slot = self.slot()
        slot.data = wire.frame(b'["fail",%b]' % _quoted(text))
        self.pause()
        self._closing = True
        self.send_ready()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        if self._writing:
            self._loop.remove_writer(self._sock)
        for fd in self._fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._sock.close()
        self._on_close(self)


def _quoted(text: str) -> bytes:
    return orjson.dumps(text)
