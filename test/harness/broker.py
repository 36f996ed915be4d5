"""A broker of a test's own, as a process, and a client that reads its answers by itself."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import forks
from harness.forks import Forked
from harness.ports import free_port
from harness.starting import environment
from harness.waiting import wait_until
from rq.config import files
from rq.layout import Root


class Simple(str):
    """A status: `+OK`."""

    __slots__ = ()


class Refused(str):
    """An error: `-ERR …`."""

    __slots__ = ()


class Client:
    """One connection; `ask` gives answers as values, errors among them."""

    def __init__(self, to: int | socket.socket) -> None:
        """`to`: a port, or a socket that is connected."""
        if isinstance(to, int):
            to = socket.create_connection(("127.0.0.1", to))
        to.settimeout(60)
        self.socket = to
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
    """The process of one node in a directory of its own, or of a root with `settings`."""

    def __init__(
        self, directory: Path, env: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.directory = directory
        self.env = dict(env or {})
        self.log = Path(tempfile.mkstemp(suffix=".broker.log")[1])
        self.port = free_port()
        self.words = ["--dir", str(directory), "--port", str(self.port)]
        if settings:
            self.words = ["--root", str(directory)]
            files.make_root(Root(directory))
            main = {"env": "test", "host": "127.0.0.1", "port": free_port()}
            main |= settings.pop("main", {})
            files.write_state(Root(directory).config, main)
            chosen = {"enabled": True, "port": self.port, **settings}
            files.write_state(Root(directory).broker_config, chosen)
        self.before: list[str] = []  # words of a command that runs it
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._clients: list[Client] = []

    def start(self) -> Client:
        """Start it; return a client."""
        self.begin()
        return wait_until(self.client)

    def begin(self, crash_at: str = "") -> None:
        """Start it, to be killed at a point of its work if one is named."""
        if self.process is not None:
            self.process.wait(60)
        env = environment({"RQ_CRASH_AT": crash_at, **self.env})
        with self.log.open("ab") as log:
            if self.before or not forks.suffice(self.env):
                module = [sys.executable, "-m", "harness.broker_process"]
                words = [*self.before, *module, *self.words]
                self.process = subprocess.Popen(words, env=env, stderr=log)
            else:
                self.process, _ = forks.start("broker", self.words, env, log.fileno())

    def told(self) -> str:
        """Return what it has logged."""
        return self.log.read_text()

    def client(self) -> Client:
        """Return a further client."""
        assert self.process is not None
        client = Client(self.door())
        self._clients.append(client)
        return client

    def door(self) -> int | socket.socket:
        """Return its port, or a socket that is connected to it."""
        return self.port

    def own(self) -> Client:
        """Return a client at the socket of our own user, for whoever asks to close."""
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.directory / "config" / "broker.sock"))
        return Client(sock)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it cleanly; return its exit status."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

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
        sys.stderr.write(self.log.read_text())
        self.log.unlink()


@contextlib.contextmanager
def broker_in(
    directory: Path, env: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[Broker]:
    """Give a broker, which ends with the block; `settings` are those of a root, with
    those of `config.json` under `main`."""
    broker = Broker(directory, env, **settings)
    try:
        yield broker
    finally:
        broker.close()
