"""Ports of loopback that are free."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a port that nobody else is given while this process lives: a socket that does
    not listen keeps it, on all addresses, and lets in who says SO_REUSEADDR, as servers
    do."""
    sock = socket.socket(
        socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    )
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("", 0))
    port = int(sock.getsockname()[1])
    sock.detach()
    return port
