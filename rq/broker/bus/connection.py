"""One connection between two nodes, from either end."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from dataclasses import dataclass
from typing import Protocol, cast

from rq.access import kernel
from rq.broker.bus import codec
from rq.broker.bus.channel import fingerprint
from rq.broker.bus.codec import Sent
from rq.broker.bus.frames import (
    MAGIC,
    NONCE,
    PREAMBLE,
    BadFrame,
    Opener,
    OtherVersion,
    Sealer,
    check_magic,
    keys,
    nonce_in,
)
from rq.broker.bus.frames import PIECE as MOST_PAYLOAD
from rq.broker.bus.outbox import LAST, MORE, WHOLE, Outbox
from rq.broker.cluster.gossip import Ends, Forget, Greeting, HasFailed
from rq.resp import BULK_LIMIT

PATIENCE = 5.0  # seconds that a handshake may take
_ID = 20  # bytes of a node's id, the first payload of each side
_MOST_MESSAGE = BULK_LIMIT + 1024 * 1024  # bytes: a body, and what is around it
_AT_ONCE = 64 * 1024  # bytes that are given to the kernel in one go
_SLICE = 0.01  # seconds in which messages are taken until others have their turn
_MOST_UNSENT = 64 * 1024  # bytes that the kernel keeps behind those that are under way


class Owner(Protocol):
    """Who hears of a connection."""

    def opened(self, connection: Connection) -> None:
        """The other side has proved that it has the secret; `peer` is its id."""

    def came(self, connection: Connection, message: Sent) -> None:
        """The other side has sent a message."""

    def refused(self, connection: Connection, why: str) -> None:
        """It is ended, for the other side did what it must not."""

    def ended(self, connection: Connection) -> None:
        """It is over, whether it was open or not."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a node proves, and how."""

    node_id: str
    secret: bytes  # b"": none; then both ends are processes of this user, on loopback
    certificate: bytes = b""  # the fingerprint of the one that is shown, over TLS


class Connection(asyncio.Protocol):
    """Frames of one connection, in both directions."""

    def __init__(self, identity: Identity, owner: Owner, *, connects: bool) -> None:
        """`connects`: this side has made the connection."""
        self.peer = ""  # its id, once it is proved
        self.ends = Ends("", "")
        self.outbox = Outbox()
        self.connects = connects
        self.why = ""  # we have ended it
        self._identity = identity
        self._owner = owner
        self._nonce = _new_nonce(connects=connects)
        self._transport: asyncio.Transport | None = None
        self._opener: Opener | None = None
        self._sealer: Sealer | None = None
        self._preamble = b""
        self._pieces: list[bytes] = []
        self._size = 0  # bytes of them
        self._is_full = False
        self._rests = False  # nothing is read, for there is much to be taken
        self._patience: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether the other side has proved who it is."""
        return bool(self.peer)

    @property
    def ended_early(self) -> str:
        """Why the other side has ended it, as far as that can be seen from here."""
        if self.is_open:
            return "it ended the connection"
        if self._opener is None:
            return (
                "it ended the connection before it said anything, as one does that speaks "
                "TLS (`bus_tls`)"
            )
        return "it has another secret, or none"

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = self._transport.get_extra_info("socket")
        self.ends = Ends(_host(sock.getsockname()), _host(sock.getpeername()))
        # Else signs of life wait there behind megabytes, and the node counts as silent.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MOST_UNSENT)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(PATIENCE, self._too_late)
        self._transport.set_write_buffer_limits(_AT_ONCE)
        if self.connects:
            self._transport.write(MAGIC + self._nonce)

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except BadFrame as error:
            self._refuse(str(error))

    def _read_on(self) -> None:
        """Go on with what came, after others on the loop had their turn."""
        if self._transport is None or self._transport.is_closing():
            return
        self._rests = False
        self.data_received(b"")
        if not self._rests and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._send_on()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_patience()
        self._owner.ended(self)

    # ---- reading

    def _take(self, data: bytes) -> None:
        if self._opener is None:
            wanted = PREAMBLE - len(self._preamble)
            self._preamble, data = self._preamble + data[:wanted], data[wanted:]
            self._check_magic()
            if len(self._preamble) < PREAMBLE:
                return
            self._agree(nonce_in(self._preamble))
        if self._opener is None:
            return
        until = time.monotonic() + _SLICE
        self._opener.feed(data)
        while (payload := self._opener.next()) is not None:
            if self._transport is None or self._transport.is_closing():
                return
            self._take_payload(payload)
            if time.monotonic() > until:
                self._rest()
                return

    def _rest(self) -> None:
        """Give way to others on the loop: what came may be thousands of messages."""
        if self._transport is not None and not self._transport.is_closing():
            self._rests = True
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _check_magic(self) -> None:
        """A node of another version is told ours, so that its log says why, too."""
        try:
            check_magic(self._preamble)
        except OtherVersion:
            if not self.connects and self._transport is not None:
                self._transport.write(MAGIC + self._nonce)
            raise

    def _agree(self, nonce: bytes) -> None:
        """Make the keys of both directions. The side that connected proves first that it has
        the secret: a stranger who asks gets nothing to guess by."""
        secret = self._identity.secret
        if not secret and not self._is_ours():
            raise BadFrame("without a secret only processes of this user may come")
        if self.connects:
            ours, theirs = keys(secret, self._nonce, nonce, self._channel())
        else:
            theirs, ours = keys(secret, nonce, self._nonce, self._channel())
        self._sealer, self._opener = Sealer(ours), Opener(theirs, _ID)
        if self.connects:
            self._prove()
        elif self._transport is not None:
            self._transport.write(MAGIC + self._nonce)

    def _channel(self) -> bytes:
        """Return the fingerprint of the certificate of this connection, which the side
        shows that takes it; b"": it has no TLS."""
        if not self.connects or self._transport is None:
            return self._identity.certificate
        tls = self._transport.get_extra_info("ssl_object")
        return b"" if tls is None else fingerprint(tls.getpeercert(binary_form=True))

    def _is_ours(self) -> bool:
        """Whether root or our own user is at the other end, as the kernel says: of one
        that has sent something, so that no one has to accept it yet."""
        if self._transport is None:
            return False
        sock = self._transport.get_extra_info("socket")
        return kernel.owner_of_peer(sock) in (0, os.getuid())

    def _prove(self) -> None:
        if self._sealer is not None and self._transport is not None:
            node_id = bytes.fromhex(self._identity.node_id)
            self._transport.write(self._sealer.seal(node_id))

    def _take_payload(self, payload: bytes) -> None:
        if not self.is_open:
            self._open(payload)
            return
        mark, data = payload[:1], payload[1:]
        if mark == WHOLE and data:
            self._owner.came(self, codec.decode(data))
            return
        if mark not in (MORE, LAST):
            raise BadFrame("a payload that is no part of a message")
        self._size += len(data)
        if self._size > _MOST_MESSAGE:
            raise BadFrame(f"a message of over {_MOST_MESSAGE} bytes")
        self._pieces.append(data)
        if mark == LAST:
            whole = b"".join(self._pieces)
            self._pieces, self._size = [], 0
            self._owner.came(self, codec.decode(whole))

    def _open(self, payload: bytes) -> None:
        if len(payload) != _ID:
            raise BadFrame("no id of a node")
        if not self.connects:
            self._prove()
        if self._opener is not None:
            self._opener.most = MOST_PAYLOAD
        self._end_patience()
        self.peer = payload.hex()
        self._owner.opened(self)

    # ---- writing

    def send(self, message: Sent) -> None:
        """Send a message, if there is room for it and the connection is open."""
        if self.is_open:
            urgent = isinstance(message, Greeting | HasFailed | Forget)
            self.outbox.put(codec.encode(message), urgent=urgent)
            self._send_on()

    def put(self, data: bytes) -> None:
        """Take a message about jobs, as bytes, which leaves with the next `flush`."""
        if self.is_open:
            self.outbox.put(data)

    def flush(self) -> None:
        """Send what was put, as far as the other side takes it."""
        self._send_on()

    def _send_on(self) -> None:
        while self.outbox and not self._is_full:
            sealer, transport = self._sealer, self._transport
            if sealer is None or transport is None or transport.is_closing():
                return
            batch, size = [], 0
            while size < _AT_ONCE and (payload := self.outbox.next()) is not None:
                batch.append(sealer.seal(payload))
                size += len(payload)
            transport.write(b"".join(batch))

    # ---- the end

    @property
    def is_made(self) -> bool:
        """Whether there is something to close: over TLS not before its handshake."""
        return self._transport is not None

    def close(self) -> None:
        """End it at once; `ended` follows."""
        self._end_patience()
        if self._transport is not None:
            self._transport.abort()

    def _too_late(self) -> None:
        self._refuse(f"it did not say who it is in {PATIENCE:.0f} s")

    def _refuse(self, why: str) -> None:
        self.why = why
        self._owner.refused(self, why)
        self.close()

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _new_nonce(*, connects: bool) -> bytes:
    """Return a nonce. That of the side that connects ends a line: a port for clients, which is
    no port for nodes, then answers at once, and not only after `PATIENCE`."""
    end = b"\r\n" if connects else b""
    return os.urandom(NONCE - len(end)) + end


def _host(name: object) -> str:
    """Return the address in the name of an end; an IPv4 one that is mapped as itself."""
    if not isinstance(name, tuple) or not name:
        return ""
    return str(name[0]).removeprefix("::ffff:")
