"""How fast messages are accepted over REST: 32 connections that stay open, durably."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.parse import quote_plus

import bench

from rq.layout import Root

CLIENTS = 32
TOTAL = int(os.environ.get("RQ_BENCH_MESSAGES", "6000"))


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            root = bench.make_root(disk.path, paused=True)
            with bench.process(root, "q"), web(root) as port:
                crowd(port, send_request(), 500)
                for text, clients in (("1 connection", 1), ("32 connections", CLIENTS)):
                    show(f"send, {text}", port, send_request(), clients)
                show("GET /q/q.json, 32 connections", port, get("/q/q.json"), CLIENTS)
                show("GET /livez, 32 connections", port, get("/livez"), CLIENTS)


def show(text: str, port: int, request: bytes, clients: int) -> None:
    begun = time.perf_counter()
    total = TOTAL if clients > 1 else TOTAL // 4
    took = sorted(crowd(port, request, total, clients))
    rate = total / (time.perf_counter() - begun)
    median, late = statistics.median(took), took[int(len(took) * 0.99)]
    print(
        f"  {text:34}{rate:8.0f}/s   p50 {median * 1e3:.1f} ms  p99 {late * 1e3:.1f} ms"
    )


@contextlib.contextmanager
def web(root: Root) -> Iterator[int]:
    """Run the web of a root until the block ends; give its port."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = int(sock.getsockname()[1])
    settings = json.loads(root.config.read_text())
    root.config.write_text(json.dumps({**settings, "port": port}))
    ready, theirs = os.pipe()
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rq.web",
            "--root",
            root.path,
            "--ready-fd",
            str(theirs),
        ],
        pass_fds=[theirs],
        env={**os.environ, "PYTHONPATH": str(bench.REPOSITORY)},
    )
    os.close(theirs)
    if os.read(ready, 1) != b"\n":
        raise SystemExit(f"the web did not start; see {root.log}")
    os.close(ready)
    try:
        yield port
    finally:
        child.terminate()
        child.wait()


def send_request() -> bytes:
    message = {"dest": "q", "src": "bench", "param1": "x" * 100}
    body = f"x_format=json&mesg={quote_plus(json.dumps(message))}".encode()
    return (
        b"POST /q/q/new_message HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def crowd(port: int, request: bytes, total: int, clients: int = CLIENTS) -> list[float]:
    """Ask `total` times over `clients` connections, one outstanding each."""
    lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
    selector = selectors.DefaultSelector()
    left = iter(range(total))
    begun: dict[socket.socket, float] = {}
    took: list[float] = []

    def ask(one: socket.socket) -> None:
        if next(left, None) is not None:
            begun[one] = time.perf_counter()
            one.sendall(request)

    for one in lines:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(one, selectors.EVENT_READ)
        ask(one)
    while len(took) < total:
        for key, _ in selector.select():
            one = key.fileobj
            answer = one.recv(65536)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"refused: {answer[:500]!r}")
            took.append(time.perf_counter() - begun[one])
            ask(one)
    for one in lines:
        selector.unregister(one)
        one.close()
    return took


if __name__ == "__main__":
    main()
