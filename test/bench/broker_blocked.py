"""How soon a client that waits has what another one has sent."""

from __future__ import annotations

import selectors
import socket
import time


def delivered(
    port: int, wait: bytes, send: bytes, wait_lines: int, send_lines: int, times: int
) -> list[float]:
    """Return the seconds from the answer to who sent, when all is durable, to that of who
    waited; 0 if that came first."""
    with (
        socket.create_connection(("127.0.0.1", port)) as waiter,
        socket.create_connection(("127.0.0.1", port)) as sender,
        selectors.EpollSelector() as selector,
    ):
        for sock in (waiter, sender):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(sock, selectors.EVENT_READ)
        took = []
        for _ in range(times):
            waiter.sendall(wait)
            time.sleep(0.001)  # it waits by now
            sender.sendall(send)
            missing = {waiter: wait_lines, sender: send_lines}
            came = _came(selector, missing)
            took.append(max(0.0, came[waiter] - came[sender]))
    return took


def _came(
    selector: selectors.EpollSelector, missing: dict[socket.socket, int]
) -> dict[socket.socket, float]:
    """Return when each answer was whole."""
    came: dict[socket.socket, float] = {}
    while len(came) < len(missing):
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            data = sock.recv(65536)
            if not data or data[:1] == b"-":
                raise SystemExit(f"the server says {data[:200]!r}")
            missing[sock] -= data.count(b"\n")
            if missing[sock] <= 0:
                came[sock] = time.perf_counter()
    return came
