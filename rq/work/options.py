"""What an agent is told at its start, checked."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.outbound import addresses, peers
from rq.outbound.peers import Peer, Target
from rq.words.nesting import Json

MOST_SLOTS = 1024
LABEL = 64  # characters
_SECRET = 4096  # bytes of a token's file


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an agent is told."""

    to: Target
    peer: Peer
    slots: int
    label: str
    script: Path | None  # None: the one that the queue shares
    base: Path  # the directory of all agents
    once: bool
    seconds: float | None  # it leases for so long
    goes_on: bool  # scripts do, when nobody renews their leases
    grace: float  # seconds between TERM and KILL

    def about(self) -> dict[str, Json]:
        """Return what the queue's host is told of this worker."""
        return {
            "label": self.label,
            "slots": self.slots,
            "host": socket.gethostname()[:LABEL],
        }


def target(url: str) -> Target:
    """Return the queue that a URL names; BadInput."""
    return peers.target(url)


def peer_of(
    to: Target, root: Root | None, token_file: Path | None, insecure: bool
) -> Peer:
    """Return how a host is reached: as config/peers.json of a root says, with the token
    of a file. Whoever starts an agent has named the host, so it may be an internal one."""
    settings = Peer() if root is None else peers.read(root, to)
    allow = settings.allow.and_also(addresses.allowed([to.place]))
    peer = replace(settings, allow=allow, insecure=insecure or settings.insecure)
    if token_file is None:
        return peer
    secret = read_token(token_file)
    return replace(peer, token=secret, user=None, password="")


def read_token(path: Path) -> str:
    """Return the secret in a file that nobody else may read; BadConfig."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            info = os.fstat(file.fileno())
            data = file.read(_SECRET) if stat.S_ISREG(info.st_mode) else b""
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror or error}") from None
    mode = stat.S_IMODE(info.st_mode)
    if mode & 0o077:
        raise BadConfig(f"{path} holds a secret and has mode {mode:04o}: chmod 600 it")
    secret = data.decode("ascii", "replace").strip()
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise BadConfig(f"{path} holds no token: `rq token create` prints one")
    return secret


def label(text: str | None) -> str:
    """Return the name of a worker beside its user's, this host's if none is given;
    BadInput."""
    if text is None:
        return socket.gethostname()[:LABEL]
    if len(text) > LABEL or not text.isprintable():
        raise BadInput(f"a label is at most {LABEL} visible characters: {text!r:.80}")
    return text
