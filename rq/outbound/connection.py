"""One TCP connection to an address that was judged."""

from __future__ import annotations

import http
import http.client
import socket
import time
from collections.abc import Sequence

from rq.outbound.addresses import Place


def connect(places: Sequence[Place], timeout: float) -> socket.socket:
    """Return a connection to the first of `places` that answers; OSError. None of them
    may use up the time of the others; `timeout` is in seconds, for all."""
    deadline = time.monotonic() + timeout
    failed: OSError = OSError("no address")
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            break
        try:
            sock = _connected(place, seconds / left)
        except OSError as error:
            failed = error
        else:
            sock.settimeout(timeout)
            return sock
    raise failed


def _connected(place: Place, timeout: float) -> socket.socket:
    family, address = place
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


def reason(error: OSError | http.client.HTTPException) -> str:
    """Return why there was no answer. What came instead of HTTP is not shown: it may be
    what a service says that the sender could not ask itself."""
    if isinstance(error, http.client.HTTPException):
        return f"what answers there does not speak HTTP ({type(error).__name__})"
    return error.strerror or str(error) or type(error).__name__


def phrase(status: int) -> str:
    """Return a status as people know it, in our words and not in those that came.

    >>> [phrase(status) for status in (404, 799)]
    ['404 Not Found', '799']
    """
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
