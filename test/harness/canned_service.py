"""A service that gives the same answer to everybody, whatever is asked."""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def service(answer: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Answer every request with the same bytes; give its port and what it was sent."""
    heard: list[bytes] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                heard.append(self.request.recv(65536))
                self.request.sendall(answer)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1], heard
        server.shutdown()
        thread.join()


def http(status: str, body: object, *headers: str) -> bytes:
    """Return an answer over HTTP; its body is JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data
