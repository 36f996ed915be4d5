"""Frames of a connection between two nodes, which no other program can make, change, repeat
or send back. Pure.

First both say MAGIC and a nonce; the side that connects goes first. From the shared secret and
both nonces come two keys, one for each direction. Then a frame is its length, a tag, and
the payload. The tag is an HMAC of the frame's number, its length and its payload, so a
frame of another connection, direction or place has a wrong one. What is inside can be
read by what carries it.
"""

from __future__ import annotations

import hmac
import struct

_ANY_VERSION = b"RQ-bus-"
MAGIC = _ANY_VERSION + b"2"  # another number when other nodes could not read a message
NONCE = 32  # bytes
PREAMBLE = len(MAGIC) + NONCE
PIECE = 64 * 1024  # bytes of payload at most
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!QI")
_TAG = 16  # bytes
# What is wrong when a tag is: of the first frame, or of a later one.
_OTHER_KEY = "it has another secret", "a frame that was not made for this place"


class BadFrame(Exception):
    """What came is no frame of this connection: it cannot go on."""


class OtherVersion(BadFrame):
    """A node is at the other end that speaks in another way."""


def keys(
    secret: bytes, connector: bytes, acceptor: bytes, channel: bytes = b""
) -> tuple[bytes, bytes]:
    """Return the keys of both directions, from both nonces: the connector's first.
    `channel`: the fingerprint of the acceptor's certificate, over TLS."""
    whole = hmac.digest(secret, MAGIC + connector + acceptor + channel, "sha256")
    return hmac.digest(whole, b"connector", "sha256"), hmac.digest(
        whole, b"acceptor", "sha256"
    )


def check_magic(begin: bytes) -> None:
    """Look at the first bytes of a connection, which may not all be there yet.
    OtherVersion: a node that this one does not understand has sent them. BadFrame: no
    node has.

    >>> check_magic(b"RQ-b")
    >>> check_magic(b"-NOAUTH")
    Traceback (most recent call last):
    rq.broker.bus.frames.BadFrame: it is a port for clients: nodes come in 10,000 above it
    """
    if MAGIC.startswith(begin[: len(MAGIC)]):
        return
    if begin.startswith(_ANY_VERSION):
        version = begin[len(_ANY_VERSION) : len(MAGIC)].decode("ascii", "replace")
        raise OtherVersion(
            f"that node speaks version {version} between nodes, this one "
            f"{MAGIC[-1:].decode()}: run the same version of RQ on both"
        )
    if begin[:1] in (b"-", b"+"):
        raise BadFrame("it is a port for clients: nodes come in 10,000 above it")
    if begin[:1] == b"\x16":
        raise BadFrame("it speaks TLS, and this node does not: set `bus_tls` on both")
    raise BadFrame("it does not begin as a node does")


def nonce_in(preamble: bytes) -> bytes:
    """Return the nonce that a connection begins with; BadFrame: no node has sent that.

    >>> nonce_in(MAGIC + bytes(32)) == bytes(32)
    True
    """
    check_magic(preamble)
    if len(preamble) != PREAMBLE:
        raise BadFrame("it does not begin as a node does")
    return preamble[len(MAGIC) :]


class _Tags:
    """The tags of one direction; what a key leads to is worked out once."""

    def __init__(self, key: bytes) -> None:
        self._begun = hmac.new(key, digestmod="sha256")

    def of(self, number: int, payload: bytes) -> bytes:
        """Return the tag of a frame."""
        whole = self._begun.copy()
        whole.update(_NUMBER.pack(number, len(payload)) + payload)
        return whole.digest()[:_TAG]


class Sealer:
    """Makes the frames of one direction."""

    def __init__(self, key: bytes) -> None:
        self._tags = _Tags(key)
        self._number = 0

    def seal(self, payload: bytes) -> bytes:
        """Return the next frame."""
        tag = self._tags.of(self._number, payload)
        self._number += 1
        return _LENGTH.pack(len(payload)) + tag + payload


class Opener:
    """Reads the frames of the other direction."""

    def __init__(self, key: bytes, most: int = PIECE) -> None:
        """`most`: bytes of a payload."""
        self.most = most
        self._tags = _Tags(key)
        self._number = 0
        self._kept = bytearray()
        self._at = 0  # where the next frame begins in it

    def feed(self, data: bytes) -> None:
        """Take what came.

        Ensures that no more than this and a frame is kept, whatever its length claims.
        """
        del self._kept[: self._at]
        self._at = 0
        self._kept += data

    def next(self) -> bytes | None:
        """Return the next payload; None: it is not whole yet. BadFrame: what came is
        wrong, and nothing after it counts."""
        start = self._at
        head = start + _LENGTH.size
        if len(self._kept) < head:
            return None
        size = int(_LENGTH.unpack_from(self._kept, start)[0])
        if not 0 < size <= self.most:
            raise BadFrame(f"a frame of {size} bytes")
        if len(self._kept) < head + _TAG + size:
            return None
        tag = bytes(self._kept[head : head + _TAG])
        payload = bytes(self._kept[head + _TAG : head + _TAG + size])
        if not hmac.compare_digest(tag, self._tags.of(self._number, payload)):
            raise BadFrame(_OTHER_KEY[self._number > 0])
        self._number += 1
        self._at = head + _TAG + size
        return payload
