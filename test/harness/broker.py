"""A broker of a test's own, as a process, and a client that reads its answers by itself."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.ports import free_port
from harness.starting import environment
from harness.waiting import wait_until


class Simple(str):
    """A status: `+OK`."""

    __slots__ = ()


class Refused(str):
    """An error: `-ERR …`."""

    __slots__ = ()


class Client:
    """One connection; `ask` gives answers as values, errors among them."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._file = self.socket.makefile("rb")

    def send(self, *words: str | bytes | int) -> None:
        """Send a command without waiting for its answer."""
        self.socket.sendall(command(*words))

    def ask(self, *words: str | bytes | int) -> Any:
        """Send a command; return its answer."""
        self.send(*words)
        return self.answer()

    def answer(self) -> Any:
        """Return the next answer; EOFError at the end of the connection."""
        line = self._file.readline()
        if not line:
            raise EOFError("the broker has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return Simple(rest.decode())
        if kind == b"-":
            return Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        return self._sized(kind, int(rest))

    def _sized(self, kind: bytes, size: int) -> Any:
        if size < 0:
            return None
        if kind == b"$":
            return self._file.read(size + 2)[:-2]
        if kind == b"%":
            return {self.answer(): self.answer() for _ in range(size)}
        assert kind == b"*", kind
        return [self.answer() for _ in range(size)]

    def close(self) -> None:
        self._file.close()
        self.socket.close()


def command(*words: str | bytes | int) -> bytes:
    """Return a command as its bytes."""
    data = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in data]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


class Broker:
    """The process of one node in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    def start(self) -> Client:
        """Start it; return a client."""
        self.begin()
        return wait_until(self.client)

    def begin(self, crash_at: str = "") -> None:
        """Start it, to be killed at a point of its work if one is named."""
        if self.process is not None:
            self.process.wait(20)
        words = ("--dir", str(self.directory), "--port", str(self.port))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rq.broker", *words],
            env=environment({"RQ_CRASH_AT": crash_at}),
        )

    def client(self) -> Client:
        """Return a further client."""
        assert self.process is not None
        client = Client(self.port)
        self._clients.append(client)
        return client

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it cleanly; return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)

    def restart(self) -> Client:
        """Kill it and start it again; return a client."""
        self.kill()
        return self.start()

    def close(self) -> None:
        """Leave nothing behind."""
        for client in self._clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.kill()


@contextlib.contextmanager
def broker_in(directory: Path) -> Iterator[Broker]:
    """Give a broker, which ends with the block."""
    broker = Broker(directory)
    try:
        yield broker
    finally:
        broker.close()
