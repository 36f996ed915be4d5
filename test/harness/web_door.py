"""A door of the web before an application that tells what it was asked with."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.starting import READY, environment, start
from harness.web_server import write_config
from rq.config import files
from rq.layout import Root

SERVER = CHECKOUT / "test/web/door_server.py"
GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Door:
    """A door that tells what it lets in."""

    def __init__(self, port: int, pid: int, log: Path) -> None:
        self.port = port
        self._pid = pid
        self._log = log

    def line(self, **how: Any) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60, **how)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def told(self, path: str = "/", **headers: str) -> dict[str, Any]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(line):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            line.request("GET", path, headers=named)
            answer = line.getresponse()
            assert answer.status == 200, answer.read()
            told: dict[str, Any] = json.load(answer)
            return told

    def worker(self) -> int:
        """Return the process that accepts."""
        return int(subprocess.check_output(["pgrep", "-P", str(self._pid)]))

    def descriptors(self) -> set[int]:
        """Return those that the process which accepts has open."""
        return {int(fd) for fd in os.listdir(f"/proc/{self.worker()}/fd")}

    def memory(self) -> int:
        """Return the bytes of memory that the process which accepts has."""
        pages = Path(f"/proc/{self.worker()}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def is_full(self) -> bool:
        """Return whether one more finds no room."""
        with self.line() as line:
            line.sendall(GET)
            return b" 503 " in line.recv(65536)

    def log(self) -> str:
        return self._log.read_text()


@contextlib.contextmanager
def door(
    path: Path, /, changes: dict[str, Any] | None = None, *command: str, **settings: Any
) -> Iterator[Door]:
    files.make_root(Root(path))
    port = free_port()
    write_config(path, port, **settings)
    words = [sys.executable, SERVER, path, READY, json.dumps(changes or {})]
    with (path / "door.log").open("wb") as log:
        process, said = start([*command, *words], environment({}), stderr=log)
    try:
        assert said == "\n", (path / "door.log").read_text()
        yield Door(port, process.pid, path / "door.log")
    finally:
        process.terminate()
        process.wait(60)


def read_all(sock: socket.socket) -> bytes:
    """Return what comes until the other end closes."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            got += data
    return got
