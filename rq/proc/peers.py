"""The process at the other end of a Unix socket: whose it is, and what it may do."""

from __future__ import annotations

import array
import ctypes
import functools
import os
import pwd
import socket
from dataclasses import dataclass
from pathlib import Path

from rq.files import beneath

# Linux has it on all machines that RQ is built for; Python does not name it.
_SO_PEERGROUPS = 59
_MOST = 1024  # bytes that Python takes of an option: 256 groups

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


def groups_of(sock: socket.socket, peer: Peer) -> frozenset[int]:
    """Return the supplementary groups that the peer had when it connected; where the
    kernel does not tell (SO_PEERGROUPS), those that its user has by the databases."""
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST)
    except OSError:
        return _groups_by_name(peer)
    return frozenset(array.array("I", data))


def _groups_by_name(peer: Peer) -> frozenset[int]:
    try:
        name = pwd.getpwuid(peer.uid).pw_name
    except KeyError:
        return frozenset()
    return frozenset(os.getgrouplist(name, peer.gid))


def is_nameless(uid: int) -> bool:
    """Whether `uid` is what the kernel says of users that our namespace has no number
    for. In a namespace that has all numbers it is a user as others are."""
    return uid == _overflow_uid() and not _has_all_users()


@functools.cache
def _overflow_uid() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534


@functools.cache
def _has_all_users() -> bool:
    try:
        ranges = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return os.uname().sysname != "Linux"
    return ranges == ["0", "0", str(2**32 - 1)]


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
        return beneath.open_named(path, flags)
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(os.getgid())
        os.setgroups(groups)
