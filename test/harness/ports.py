"""Ports of loopback that are free."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port that nobody else is given while this process lives: a socket that does
    not listen keeps it, on all addresses, and lets in who says SO_REUSEADDR, as servers
    do."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", 0))
    port = int(sock.getsockname()[1])
    sock.detach()
    return port
