"""One TCP connection to an address that was judged: where it may go, and how it is
verified."""

from __future__ import annotations

import http
import http.client
import socket
import ssl
import time
from collections.abc import Sequence

from rq.errors import BadConfig, BadInput, Refused
from rq.outbound import addresses
from rq.outbound.addresses import Internal, Place
from rq.outbound.peers import Peer, Target

_IN_CLEAR = (
    "no password or token goes to {peer} over plain HTTP, where others can read it: use "
    'https, or set "insecure": true for it in config/peers.json (`rq work`: --insecure)'
)


class NotAllowed(Refused):
    """Nothing was sent, and a person has to allow it first."""


def open_to(to: Target, peer: Peer, timeout: float) -> socket.socket:
    """Return a connection to a host, at an address where it may be asked, without TLS;
    OSError, or NotAllowed when there is no such address. `timeout` is in seconds."""
    return connect(_places(to, peer), timeout)


def _places(to: Target, peer: Peer) -> list[Place]:
    try:
        places = addresses.find(ascii_host(to), to.port, peer.allow)
    except Internal as error:
        text = f"{error}: `rq relay allow {to.place}` lets RQ send there"
        raise NotAllowed(text) from None
    if to.scheme == "https" or not peer.login or peer.insecure:
        return places
    if inside := [place for place in places if addresses.is_loopback(place)]:
        return inside
    raise NotAllowed(_IN_CLEAR.format(peer=to.peer))


def ascii_host(to: Target) -> str:
    """Return a host as it is asked for; BadInput when it can be none."""
    try:
        return to.host.encode("idna").decode()
    except UnicodeError:
        raise BadInput(f"{to.host!r:.80} cannot be a host") from None


def tls(peer: Peer) -> ssl.SSLContext:
    """Return how a host is verified."""
    context = ssl.create_default_context()
    if peer.ca is not None:
        try:
            context.load_verify_locations(peer.ca)
        except OSError as error:
            raise BadConfig(f"peers.json: ca {peer.ca}: {error}") from None
    return context


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
