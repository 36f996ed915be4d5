"""The one way to ask an owner: a request over its Unix socket, a reply in JSON."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from rq.config import files
from rq.errors import BadInput, OutcomeUnknown, Refused, Unreachable
from rq.rpc import wire

TIMEOUT = 60.0  # seconds for a whole reply
_READ = 256 * 1024
_BACKLOG_PAUSE = 0.01  # seconds until it is tried again
LOST = "the request may or may not have been carried out"


class Connection:
    """A connection that can carry many requests, one after the other or pipelined."""

    def __init__(
        self, path: Path, timeout: float = TIMEOUT, magic: bytes = wire.MAGIC
    ) -> None:
        self._path = path
        self._magic = magic
        self._frames = wire.Frames(magic, limit=wire.REPLY_LIMIT)
        self._replies: list[bytes] = []
        self._kinds = Kinds(magic)
        self._timeout = timeout
        self._owed = 0  # replies that are still to come
        self._socket = connect(path, timeout)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def ask(self, command: str, arg: object = b"", fds: Sequence[int] = ()) -> Any:
        """Return the reply to one request; `fds` travel with it."""
        self.send(command, arg, fds)
        return self.receive()

    def send(self, command: str, arg: object = b"", fds: Sequence[int] = ()) -> None:
        """Send a request without waiting for its reply."""
        self.send_payload(command.encode() + b" " + encode_arg(arg), fds)

    def send_payload(self, payload: bytes, fds: Sequence[int] = ()) -> None:
        """Send a payload that is framed here and nothing else; over another connection, if
        the owner has hung up since the last reply: what is not sent whole is not done."""
        try:
            self._send(payload, fds)
        except OSError as error:
            if self._owed or isinstance(error, TimeoutError):
                raise OutcomeUnknown(
                    f"{self._path} hung up ({error}): {LOST}"
                ) from None
            self._connect_again()
            self._send_once_more(payload, fds)
        self._owed += 1

    def _send(self, payload: bytes, fds: Sequence[int]) -> None:
        data = self._kinds.request() + wire.frame(payload, self._magic)
        if fds:
            packed = array.array("i", fds)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
            sent = self._socket.sendmsg([data], rights)
            data = data[sent:]
        self._socket.sendall(data)

    def _send_once_more(self, payload: bytes, fds: Sequence[int]) -> None:
        try:
            self._send(payload, fds)
        except OSError as error:
            raise OutcomeUnknown(f"{self._path} hung up ({error}): {LOST}") from None

    def _connect_again(self) -> None:
        self._socket.close()
        self._frames = wire.Frames(self._magic, limit=wire.REPLY_LIMIT)
        self._kinds = Kinds(self._magic)
        self._socket = connect(self._path, self._timeout)

    def receive(self) -> Any:
        """Return the next reply, decoded."""
        while not self._replies:
            try:
                data = self._socket.recv(_READ)
            except TimeoutError:
                raise OutcomeUnknown(
                    f"{self._path} did not answer in time: {LOST}"
                ) from None
            except OSError as error:
                raise OutcomeUnknown(
                    f"{self._path} hung up ({error}): {LOST}"
                ) from None
            if not data:
                raise OutcomeUnknown(f"{self._path} hung up without an answer: {LOST}")
            self._replies.extend(self._kinds.without(self._frames.feed(data)))
        self._owed -= 1
        return orjson.loads(self._replies.pop(0))


class Kinds:
    """Asks for the kinds of failures, before the first request of a connection, and
    takes the answer out of what comes.

    An owner of an earlier RQ answers that it knows no such command, and goes on.
    """

    def __init__(self, magic: bytes = wire.MAGIC, *, is_to_ask: bool = True) -> None:
        self._magic = magic
        self._is_to_ask = is_to_ask
        self._waits = False  # for the answer
        self._is_answered = False  # the first request, by a failure in that place

    def request(self) -> bytes:
        """Return what is to be sent before the next request."""
        if not self._is_to_ask:
            return b""
        self._is_to_ask, self._waits = False, True
        if self._magic == wire.MAGIC:
            return wire.request(wire.KINDS)
        return wire.frame(orjson.dumps([wire.KINDS, None]), self._magic)

    def without(self, payloads: list[bytes]) -> list[bytes]:
        """Return replies without that to `request`.

        A failure in its place is the answer to the first request. The connection may end
        with it; if it does not (a disk failed under both), what comes for that request
        itself is left out, for the next reply belongs to the next request.
        """
        if not payloads:
            return payloads
        if self._waits:
            self._waits = False
            self._is_answered = wire.is_failure(orjson.loads(payloads[0]))
            if self._is_answered:
                return payloads[:1] + self.without(payloads[1:])
            return payloads[1:]
        if self._is_answered:
            self._is_answered = False
            return payloads[1:]
        return payloads


def ask(
    path: Path,
    command: str,
    arg: object = b"",
    fds: Sequence[int] = (),
    timeout: float = TIMEOUT,
) -> Any:
    """Ask the process behind the socket `path` once; return its reply.

    Unreachable: nobody listens there, nothing was asked. OutcomeUnknown: it was asked,
    and the answer did not come.
    """
    with Connection(path, timeout) as line:
        return line.ask(command, arg, fds)


def ask_timers(
    path: Path, command: str, payload: object = None, timeout: float = TIMEOUT
) -> Any:
    """Ask the timers process, whose requests are arrays in `rq2` frames."""
    with Connection(path, timeout, wire.MAGIC2) as line:
        line.send_payload(encode_arg([command, payload]))
        return line.receive()


def demanded(reply: object, about: str = "") -> Any:
    """Return what follows `ok` in a reply; raise the failure in any other."""
    if isinstance(reply, list) and reply and reply[0] == "ok":
        return reply[1] if len(reply) > 1 else None
    raise wire.failure_in(reply, about) or Refused(
        f"{about}RQ does not understand the reply {reply!r:.80}"
    )


def encode_arg(arg: object) -> bytes:
    """Return an argument as the wire has it: raw text as it is, all else as JSON.

    BadInput for what JSON does not hold, such as bytes of a command line that are no
    UTF-8.
    """
    if isinstance(arg, bytes):
        return arg
    try:
        return arg.encode() if isinstance(arg, str) else orjson.dumps(arg)
    except (UnicodeEncodeError, orjson.JSONEncodeError) as error:
        raise BadInput(
            f"this cannot be sent as JSON ({error}); send bytes as an attachment"
        ) from None


def listen(path: Path, backlog: int = 1024) -> socket.socket:
    """Return a listening socket at `path`, in the place of a dead one; mode 0660."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        files.remove_name(path)  # no need to sync: no socket outlives a power cut
        with near(path) as name:
            sock.bind(name)
        path.chmod(0o660)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise BadInput(f"cannot listen at {path}: {error}") from None
    return sock


def connect(path: Path, timeout: float) -> socket.socket:
    """Return a socket that is connected to `path`; Unreachable when no process listens."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout)
    try:
        with near(path) as name:
            _connect(sock, name, time.monotonic() + timeout)
    except OSError as error:
        sock.close()
        raise Unreachable(f"nobody answers at {path}: {error.strerror}") from None
    return sock


def _connect(sock: socket.socket, name: str, until: float) -> None:
    """Connect. The process is there, and behind with a crowd of clients, while the kernel
    says that its backlog is full: that is waited for, as for a reply."""
    while True:
        try:
            return sock.connect(name)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_BACKLOG_PAUSE)


@contextlib.contextmanager
def near(path: Path) -> Iterator[str]:
    """Give a name of the socket that fits in 107 bytes, however deep the root is."""
    if len(os.fsencode(path)) <= 107 or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreachable(f"nobody answers at {path}: {error.strerror}") from None
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
