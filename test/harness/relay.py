"""Two roots of a test's own, and what goes wrong between them.

`Proxy` stands between them and does to the requests and replies of a step what it is told:
each fault happens once, then all goes through.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.checkout import CHECKOUT
from harness.queues import RunningQueue, short
from harness.waiting import wait_until
from harness.web_server import Client, web_alone
from rq.outbound import permits
from rq.spool import folders
from rq.words.states import State

RUN = CHECKOUT / "rq/bundled/relay/run"
SETTINGS = {"num_workers": 4, "worker": "persistent", "nice": 0}
SINK = "#!/bin/sh\ncat ../attach/* 2>/dev/null\necho done got it >&3\n"
HERE = ("127.0.0.1", "localhost")  # what an operator lets the relay ask
STEPS = ("prepare", "attach", "commit")
FAULTS = ("drop request", "cut request", "drop reply", "cut reply", "twice", "busy")
# These outlast the patience of the sender, who asks again meanwhile.
DELAYS = ("late request", "slow request", "late reply", "request after all")


def step_of(request: bytes) -> str:
    """Return which step of the hand-over a request belongs to."""
    line = request.partition(b"\r\n")[0]
    if b"/attach/" in line:
        return "attach"
    if b"new_message" in line:
        return "prepare"
    return "commit" if line.startswith(b"POST") else "ask"


@dataclass
class Proxy:
    """Forwards HTTP to a port; `faults` are {step: [fault or function, …]}.

    A function is called between request and reply, which is dropped unless it returns
    another fault, or `none`.
    """

    port: int
    faults: dict[str, list[Any]] = field(default_factory=dict)
    requests: list[tuple[str, int]] = field(default_factory=list)
    is_down: bool = False
    all_done: threading.Event = field(default_factory=threading.Event)
    late: list[bytes] = field(default_factory=list)  # replies that nobody waited for
    server: Any = None

    @property
    def own_port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def seen(self) -> list[str]:
        return [step for step, _ in self.requests]

    def bodies(self, step: str) -> list[int]:
        """Return the sizes of the bodies that came with a step."""
        return [size for one, size in self.requests if one == step]

    def once(self, step: str, fault: str | Callable[[], Any]) -> None:
        self.faults.setdefault(step, []).append(fault)

    def serve(self, client: socket.socket) -> None:
        client.settimeout(60)
        with client, client.makefile("rb") as reader:
            while not self.is_down and (request := _whole(reader)):
                step = step_of(request)
                size = len(request.partition(b"\r\n\r\n")[2])
                self.requests.append((step, size))
                if not self._pass(client, request, self._fault(step)):
                    return

    def _fault(self, step: str) -> Any:
        waiting = self.faults.get(step)
        return waiting.pop(0) if waiting else None

    def _pass(self, client: socket.socket, request: bytes, fault: Any) -> bool:
        if fault == "drop request":
            return False
        if fault == "busy":
            client.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            return True
        if fault == "cut request":
            self._forward(request[: len(request) * 2 // 3], whole=False)
            return False
        if fault in DELAYS:
            self._delay(client, request, fault)
            return False
        if fault == "twice":
            self._forward(request)
        reply = self._forward(request)
        if callable(fault):
            fault = fault() or "drop reply"
        if fault == "drop reply" or not reply:
            return False
        client.sendall(reply[: len(reply) // 2] if fault == "cut reply" else reply)
        return bool(fault != "cut reply")

    def _delay(self, client: socket.socket, request: bytes, fault: str) -> None:
        """Let a request come late, its end come late, or its reply."""

        def wait() -> None:
            count = len(self.requests)
            client.settimeout(60)
            client.recv(1)  # the sender has hung up
            if fault == "request after all":
                self.all_done.wait(60)
            else:
                wait_until(lambda: len(self.requests) > count, 60)

        if fault == "late reply":
            reply = self._forward(request)
            wait()
        elif fault == "slow request":
            reply = self._forward(request, between=wait)
        else:
            wait()
            reply = self._forward(request)
        self.late.append(reply)

    def _forward(
        self,
        request: bytes,
        whole: bool = True,
        between: Callable[[], None] = lambda: None,
    ) -> bytes:
        half = len(request) // 2
        try:
            with socket.create_connection(("127.0.0.1", self.port), 60) as line:
                line.sendall(request[:half])
                between()
                line.sendall(request[half:])
                if not whole:
                    return b""
                with line.makefile("rb") as reader:
                    return _whole(reader)
        except OSError:
            return b""


def _whole(reader: Any) -> bytes:
    """Return one message of HTTP with its Content-Length; empty at the end."""
    head = b""
    length = 0
    while True:
        try:
            line = reader.readline()
        except OSError:
            return b""
        head += line
        if not line:
            return b""
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
        if line == b"\r\n":
            return head + reader.read(length)


@contextlib.contextmanager
def proxy_to(port: int, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """Run a proxy before a port until the block ends; with `tls` it speaks that."""
    proxy = Proxy(port)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                line = self.request
                proxy.serve(tls.wrap_socket(line, server_side=True) if tls else line)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as proxy.server:
        thread = threading.Thread(target=proxy.server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.server.shutdown()
            thread.join()


@dataclass
class Pair:
    """A sender with its queue `relay`, a receiver with its queue `sink`, a proxy."""

    sender: RunningQueue
    sink: RunningQueue
    web: Client
    proxy: Proxy
    path: Path

    def url(self, queue: str = "sink") -> str:
        return f"http://127.0.0.1:{self.proxy.own_port}/q/{queue}"

    @property
    def direct(self) -> str:
        """Return the URL of the sink without the proxy between."""
        return f"http://127.0.0.1:{self.web.port}/q/sink"

    def send(self, files: dict[str, bytes] | None = None, **fields: Any) -> str:
        """Give the relay a message; return its short id."""
        asked = {"dest": self.url(), **fields}
        if not files:
            return self.sender.send(**asked)
        msg_id = short(self.sender.ok("prep_message", asked))
        for name, data in files.items():
            file = self.path / "outgoing"
            file.write_bytes(data)
            wanted = {"msg_id": msg_id, "pathname": str(file), "name": name}
            self.sender.ok("attach_message", wanted)
        self.sender.ok("commit_message", {"msg_id": msg_id})
        return msg_id

    def received(self) -> list[dict[str, Any]]:
        """Return every message that was accepted by the sink: once, though it may go on
        from a directory that was listed to one that is listed next."""
        states = [State.QUE, State.RUN, State.DONE, State.ERR, State.DISMISSED]
        self.sink.ok("check")
        ids = {i for one in states for i in folders.list_state(self.sink.dir, one)}
        return [self.sink.get(one) for one in sorted(ids)]

    def hurry(self, msg_id: str) -> str:
        """Let a message that waits be tried at once; return its state."""
        state = self.sender.state(msg_id)
        if state == "que":
            self.sender.ask("run_message", {"msg_id": msg_id})
            (self.sender.dir.path / "backoff.json").unlink(missing_ok=True)
        return state

    def remove(self, msg_id: str) -> None:
        """Remove a message that is tried now and then."""
        asked = {"msg_id": msg_id}
        wait_until(lambda: self.sender.ask("delete_message", asked)[0] == "ok")

    def until_told(self, msg_id: str, text: str) -> dict[str, Any]:
        """Wait until a message that waits says `text`, tried again and again."""

        def told() -> dict[str, Any] | None:
            # Looked at before it is hurried: on a quick machine it runs at once.
            found = self.sender.get(msg_id)
            if found["state"] == "que" and text in found["status"]:
                return found
            self.hurry(msg_id)
            return None

        found: dict[str, Any] = wait_until(told, 60)
        return found

    def relayed(self, msg_id: str, seconds: float = 60.0) -> dict[str, Any]:
        """Wait until a message was handed over, its due times hurried along."""

        wait_until(lambda: self.hurry(msg_id) in ("relayed", "err"), seconds)
        return self.sender.get(msg_id)


@contextlib.contextmanager
def pair_at(path: Path, **receiver: Any) -> Iterator[Pair]:
    there = path / "receiver"
    with web_alone(there, **receiver) as web, proxy_to(web.port) as proxy:
        sink = RunningQueue(there, "sink", SINK)
        sender = RunningQueue(path / "sender", "relay", RUN, **SETTINGS)
        permits.allow(sender.root, HERE)
        pair = Pair(sender, sink, web, proxy, path)
        try:
            sink.start()
            sender.start()
            yield pair
            sender.close()
            sink.close()
        finally:
            sender.kill()
            sink.kill()
