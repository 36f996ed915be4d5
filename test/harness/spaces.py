"""Sockets in another network namespace than that of this process."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable

_NET = 0x40000000  # CLONE_NEWNET
_libc = ctypes.CDLL(None, use_errno=True)


def connected(space: str, port: int) -> socket.socket:
    """Return a connection to a port of loopback in a namespace that `ip netns` has named.
    A thread goes there, and ends there: no other one is moved."""
    found: list[socket.socket | OSError] = []
    thread = threading.Thread(target=_attempt, args=(found.append, space, port))
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]


def _attempt(
    tell: Callable[[socket.socket | OSError], None], space: str, port: int
) -> None:
    try:
        tell(_connect(space, port))
    except OSError as error:
        tell(error)


def _connect(space: str, port: int) -> socket.socket:
    fd = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        if _libc.setns(fd, _NET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(fd)
    return socket.create_connection(("127.0.0.1", port))
