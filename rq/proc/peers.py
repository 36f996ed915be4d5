"""Whoever asks over a Unix socket: who it is, and what it may do and read."""

from __future__ import annotations

import ctypes
import os
import socket
from dataclasses import dataclass

from rq.errors import Refused

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return who is at the other end (SO_PEERCRED)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return Peer(0, os.getuid(), os.getgid())
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = (int.from_bytes(data[i : i + 4], "little") for i in (0, 4, 8))
    return Peer(pid, uid, gid)


def check_own(peer: Peer) -> None:
    """Refused unless the asker is our user, or root."""
    if peer.uid not in (0, os.getuid()):
        raise Refused(f"user {peer.uid} may not ask this")


def open_as(path: str, peer: Peer) -> int:
    """Open a regular file for reading with no more rights than `peer` has."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    if peer.uid in (0, os.getuid()):
        return os.open(path, flags)
    if os.getuid() != 0 or not hasattr(_libc, "setfsuid"):
        raise PermissionError(f"user {peer.uid} must pass the open file to attach it")
    groups = os.getgroups()
    os.setgroups([])
    _libc.setfsgid(peer.gid)
    _libc.setfsuid(peer.uid)
    try:
        return os.open(path, flags)
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(os.getgid())
        os.setgroups(groups)
