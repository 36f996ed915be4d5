"""A receiver of webhooks on this machine."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Heard:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self):
        return json.loads(self.body)


@dataclass
class Receiver:
    """A server that notes what is posted, and answers what `answers` says."""

    heard: list[Heard] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    slow: float = 0.0
    port: int = 0
    scheme: str = "http"

    def url(self, path="/hook"):
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"


@contextlib.contextmanager
def receiver(context=None):
    known = Receiver(scheme="https" if context else "http")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.heard.append(Heard(self.path, dict(self.headers), body))
            status, headers = known.answers.pop(0) if known.answers else (204, {})
            if known.slow:
                closed.wait(known.slow)
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_):
            pass  # a client that hangs up is what some tests are about

    closed = threading.Event()
    server = Server(("127.0.0.1", 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    known.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield known
    finally:
        closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
