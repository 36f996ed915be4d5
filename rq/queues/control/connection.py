"""A connection to the control socket: frames in, replies out in order, descriptors too.

Bare sockets on the loop, not asyncio's streams: a request costs one recvmsg and one
send, and passed descriptors arrive with the bytes they came with.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable

import orjson

from rq.access.sockets import Asker
from rq.errors import BadInput, Busy, RQError, TooLarge
from rq.proc.slices import Slice
from rq.rpc import wire

REQUEST_LIMIT = 2 * 1024 * 1024  # bytes
_READ = 256 * 1024
_MAX_FDS = 16
_CUT = int(
    socket.MSG_CTRUNC
)  # descriptors were lost; a plain number is compared faster
_ANCILLARY = socket.CMSG_SPACE(_MAX_FDS * 4)
_BACKLOG = (
    16 * 1024 * 1024
)  # bytes of untaken replies, beyond which no more is answered
RESTS = 0.5  # seconds from an answer to when a queue may hang up to be parked …
NEVER_ASKED = 10.0  # … and from the beginning of a connection to its first request
_SLICE = 0.01  # seconds for the requests of one asker, before others have their turn


class Slot:
    """The place of one reply in the order of a connection's replies."""

    __slots__ = ("connection", "data", "lost")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data: bytes | None = None
        self.lost: Callable[[], None] | None = None  # called if its client has gone


class Connection:
    """One asker."""

    def __init__(
        self,
        sock: socket.socket,
        asker: Asker,
        loop: asyncio.AbstractEventLoop,
        on_request: Callable[[Connection, bytes], None],
        on_close: Callable[[Connection], None],
    ) -> None:
        self.asker = asker
        self.partial_since: float | None = None
        self.minded = False  # the client is this process's parent
        self.tells_kinds = False  # of failures; its asker wants them
        self.closed = False
        # When it was opened, last asked, took a reply.
        self.opened = self.used = self.taken = time.monotonic()
        self._sock = sock
        self._loop = loop
        self._on_request = on_request
        self._on_close = on_close
        self._frames = wire.Frames(limit=REQUEST_LIMIT)
        self._slots: deque[Slot] = deque()
        self._lost: list[Callable[[], None]] = []  # to call if `_out` is never taken
        self._out = b""
        self._writing = False
        self._reading = True
        self._paused = False
        self._held = False
        self._listening = False  # though a request is held
        self._going_on = False
        self.owed = 0  # bytes of replies that wait, or that the asker does not take
        self._closing = False
        self._todo: deque[tuple[bytes, list[int]]] = deque()  # requests, descriptors
        self._coming: list[int] = []  # passed with a frame that is not yet whole
        self._fds: list[int] = []  # of the request that is being answered
        loop.add_reader(sock, self._readable)

    @property
    def idle(self) -> bool:
        """Whether it waits for nothing and is not our parent."""
        return not (self._slots or self._out or self._todo or self.minded)

    def rests(self, now: float) -> bool:
        """Whether it has had its answers for a while, and one that has asked nothing yet is
        silent for so long that it will not: the queue may hang up."""
        pause = RESTS if self.used > self.opened else NEVER_ASKED
        return self.idle and self.partial_since is None and now - self.used >= pause

    def let_go(self) -> bool:
        """Hang up, unless a request has come that was not read yet: that is answered first,
        and False returned. What is sent once reading is shut down fails over there, and
        what was sent before is in the socket: there is no moment in between."""
        if self._holds_unread():
            return False
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)
        if self._holds_unread():
            return False
        self.close()
        return True

    def _holds_unread(self) -> bool:
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:  # nothing has come, or the asker is gone
            return False

    # ---- in

    def _readable(self) -> None:
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(
                _READ, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        fds = _passed(ancillary) if ancillary else []
        if flags & _CUT or len(fds) + len(self._coming) > _MAX_FDS:
            self._refuse_fds(fds)
            return
        self.used = time.monotonic()
        if not data:
            self._end()
            return
        self._feed(data, fds)

    def _refuse_fds(self, fds: list[int]) -> None:
        """Hang up: some descriptors came and some were lost, and which is not known."""
        many = len(fds) + len(self._coming) >= _MAX_FDS
        _close_all(fds)
        if many:
            text = f"at most {_MAX_FDS} descriptors come with a request"
            self.refuse(TooLarge(text))
        else:
            text = "RQ has no descriptors free for those that came; ask again"
            self.refuse(Busy(text))

    def _feed(self, data: bytes, fds: list[int]) -> None:
        """Take requests, each with its descriptors: the kernel ends a read behind the
        bytes that descriptors came with, so those of `fds` belong to the last frame."""
        try:
            payloads = self._frames.feed(data)
        except BadInput as error:
            _close_all(fds)
            self.refuse(error)
            return
        fds_of: list[list[int]] = [[] for _ in range(len(payloads) + 1)]
        fds_of[0].extend(self._coming)
        whole = payloads and not self._frames.partial
        fds_of[-2 if whole else -1].extend(fds)
        self._coming = fds_of.pop()
        self._todo.extend(zip(payloads, fds_of, strict=True))
        self._answer()
        if self._frames.partial:
            if payloads or self.partial_since is None:
                self.partial_since = time.monotonic()
        else:
            self.partial_since = None

    def _end(self) -> None:
        """The asker says no more; it still gets the answers to what it asked."""
        if self._slots or self._out or self._todo:
            self._closing = True
            self._read_or_not()
            if self._has_hung_up():
                self._lose_replies()
        else:
            self.close()

    def _has_hung_up(self) -> bool:
        """Whether the asker takes no replies either."""
        poll = select.poll()
        poll.register(self._sock, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def _answer(self) -> None:
        """Answer what was asked, one after the other; the rest later, when it
        takes long, or its replies are not taken."""
        turn = Slice(_SLICE)
        while self._todo and not (self._held or self.closed or self.owed > _BACKLOG):
            payload, self._fds = self._todo.popleft()
            self._on_request(self, payload)
            _close_all(self._fds)
            if self._todo and turn.is_over:
                self._go_on_later()
                break
        self._read_or_not()

    def _go_on_later(self) -> None:
        if not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = False
        if self.partial_since is not None:
            self.partial_since = time.monotonic()  # it was not read, so it is not late
        self._answer()

    def take_fd(self) -> int | None:
        """Return a descriptor that came with the request; the caller closes it."""
        return self._fds.pop(0) if self._fds else None

    def hold(self) -> None:
        """Begin no other request until `release`: one of this asker takes its time."""
        self._held = True
        self._read_or_not()

    def listen(self) -> None:
        """Read on though a request is held, to hear when the asker hangs up; what he asks
        meanwhile waits."""
        self._listening = True
        self._read_or_not()

    def release(self) -> None:
        self._held = self._listening = False
        self._go_on()

    def pause(self) -> None:
        """Take no more requests for now."""
        self._paused = True
        self._read_or_not()

    def resume(self) -> None:
        self._paused = False
        self._read_or_not()

    def _read_or_not(self) -> None:
        busy = (self._held and not self._listening) or self._paused or self._todo
        wanted = not (busy or self._closing or self.closed)
        if wanted and not self._reading:
            self._loop.add_reader(self._sock, self._readable)
        elif self._reading and not wanted and not self.closed:
            self._loop.remove_reader(self._sock)
        self._reading = wanted

    # ---- out

    def slot(self) -> Slot:
        """Reserve the place of the next reply."""
        slot = Slot(self)
        self._slots.append(slot)
        return slot

    def if_lost(self, call: Callable[[], None]) -> None:
        """Call once if the asker has gone before it could take the reply to the request
        that is being answered."""
        self._slots[-1].lost = call

    def send_ready(self) -> None:
        """Send the replies that are there, up to the first that is not."""
        if self.closed:
            return
        slots = self._slots
        ready = [self._out] if self._out else []
        while slots and slots[0].data is not None:
            slot = slots.popleft()
            ready.append(slot.data or b"")
            if slot.lost is not None:
                self._lost.append(slot.lost)
        self._out = ready[0] if len(ready) == 1 else b"".join(ready)
        self._send()
        if not self._out:
            self._lost.clear()

    def _send(self) -> None:
        out = self._out
        try:
            sent = self._sock.send(out) if out else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        self._out = out[sent:]
        self.owed -= sent
        if sent or not self.owed:
            self.taken = time.monotonic()
        if self._todo:
            self._go_on_later()
        if self._out and not self._writing:
            self._loop.add_writer(self._sock, self.send_ready)
            self._writing = True
        elif not self._out and self._writing:
            self._loop.remove_writer(self._sock)
            self._writing = False
        if self._closing and not (self._out or self._slots or self._todo):
            self.close()

    def refuse(self, error: RQError) -> None:
        """Answer with an error and hang up."""
        self._drop_todo()
        slot = self.slot()
        slot.data = framed(error, self.tells_kinds)
        self.owed += len(slot.data)
        self._closing = True
        self._read_or_not()
        self.send_ready()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._sock)
        if self._writing:
            self._loop.remove_writer(self._sock)
        self._drop_todo()
        self._sock.close()
        self._on_close(self)
        self._lose_replies()

    def _lose_replies(self) -> None:
        """Tell those who want to know that their replies are lost."""
        waiting = [slot.lost for slot in self._slots if slot.lost is not None]
        lost = [*self._lost, *waiting]
        self._lost.clear()
        for slot in self._slots:
            slot.lost = None
        for call in lost:
            call()

    def _drop_todo(self) -> None:
        """Forget requests that were not begun."""
        for _, fds in self._todo:
            _close_all(fds)
        self._todo.clear()
        _close_all(self._coming)


def turn_away(sock: socket.socket, error: RQError) -> None:
    """Tell a client that is not served why, and hang up."""
    with contextlib.suppress(OSError):
        sock.send(framed(error, tells_kinds=False))
    sock.close()


def framed(error: RQError, tells_kinds: bool) -> bytes:
    """Return the frame that says what went wrong."""
    return wire.frame(orjson.dumps(wire.failure(error, tells_kinds)))


def _passed(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a read."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
    fds.clear()
