"""Who holds the other end of a connection over loopback, and whether it has ended, as the
kernel says."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import socket
import struct
from collections.abc import Mapping

# <linux/netlink.h>, <linux/sock_diag.h>, <linux/inet_diag.h>, <linux/tcp.h>
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ESTABLISHED = 1
_SO_NETNS_COOKIE = 71
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST = struct.Struct("=BBBBI48s")  # family, protocol, extensions, -, states, id
_ANSWER = struct.Struct("=BBBB48sIIIII")  # …, state, …, id, …, uid, inode
_ENDS = struct.Struct("!HH16s16s")  # the first 36 bytes of an id
_LINK = b"\0" * 4  # any interface
_NO_COOKIE = b"\xff" * 8
_SEQUENCE = 1

# Inode numbers of the first namespaces (<linux/proc_ns.h>): the same on every kernel.
_FIRST = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
_CONTAINER_FILES = ("/run/.containerenv", "/run/systemd/container")

_MAPPED = b"\0" * 10 + b"\xff\xff"  # ::ffff:0:0/96
_SIX_LOOPBACK = b"\0" * 15 + b"\x01"

_OVER = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR

_Address = bytes  # 4 or 16 bytes
_End = tuple[_Address, int]  # and the port


def has_ended(sock: socket.socket) -> bool:
    """Return whether the other end has hung up, though that may not have been read yet."""
    poll = select.poll()
    poll.register(sock, _OVER)
    return bool(poll.poll(0))


def owner_of_peer(sock: socket.socket) -> int | None:
    """Return the uid that owns the other end of an accepted TCP connection.

    None: the ends are not both of loopback, or the kernel does not say it beyond doubt.
    The owner is who made the socket; a process that hands its socket to another one, or
    passes on what others say, speaks with its own uid. The question is answered within
    the call that sends it, so that nothing here waits.

    Ensures that the uid is that of this connection's peer. Our end may lie in the accept
    queue while its peer ends and another user takes the port; but the four values of the
    connection are our socket's for as long as it is ESTABLISHED: what comes from the
    port reaches our socket, which answers no handshake, so nobody else's socket with the
    same values can become ESTABLISHED. States never go back. So if our end is
    ESTABLISHED after the answer, it was at the time of the answer, and an ESTABLISHED
    socket with those values was its peer.
    """
    try:
        ours, peer = _end(sock, sock.getsockname()), _end(sock, sock.getpeername())
        if not (_is_loopback(ours[0]) and _is_loopback(peer[0])):
            return None
        uid = _ask(sock, peer, ours)
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        stands = state == bytes([_ESTABLISHED]) and uid != _overflow_uid()
    except (OSError, LookupError, ValueError, struct.error, AttributeError):
        return None  # AttributeError: this is not Linux
    return uid if stands else None


def _end(sock: socket.socket, name: tuple[str, int]) -> _End:
    address = socket.inet_pton(sock.family, name[0].partition("%")[0])
    return _plain(address), name[1]


def _plain(address: _Address) -> _Address:
    """Return ::ffff:127.0.0.1 as 127.0.0.1; the kernel knows such a peer as that."""
    return address[12:] if address[:12] == _MAPPED else address


def _is_loopback(address: _Address) -> bool:
    return address[0] == 127 if len(address) == 4 else address == _SIX_LOOPBACK


def _ask(sock: socket.socket, peer: _End, ours: _End) -> int | None:
    """Ask for the socket whose source is the peer and whose destination are we."""
    family = socket.AF_INET if len(peer[0]) == 4 else socket.AF_INET6
    ends = _ENDS.pack(peer[1], ours[1], peer[0], ours[0])  # filled up with zeros
    body = _REQUEST.pack(
        family, socket.IPPROTO_TCP, 0, 0, 1 << _ESTABLISHED, ends + _LINK + _NO_COOKIE
    )
    head = _HEADER.pack(
        _HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _SEQUENCE, 0
    )
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG) as netlink:
        if _namespace(netlink) != _namespace(sock):
            return None  # the answer would be about another network
        netlink.sendto(head + body, (0, 0))
        answer, _, flags, sender = netlink.recvmsg(4096)
        port = netlink.getsockname()[0]
    if flags & socket.MSG_TRUNC or sender[0] != 0:
        return None
    return _uid(answer, port, (peer, ours))


def _namespace(sock: socket.socket) -> bytes | None:
    """Return the cookie of a socket's network; None before Linux 5.14."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
    except OSError:
        return None


def _uid(answer: bytes, port: int, wanted: tuple[_End, _End]) -> int | None:
    """Return the owner, if the answer is one, to our question, of a living socket.

    Sockets in TIME_WAIT and those whose process is gone are said to be root's; they have
    no inode.
    """
    length, kind, _, sequence, to = _HEADER.unpack_from(answer)
    if (kind, sequence, to) != (_SOCK_DIAG_BY_FAMILY, _SEQUENCE, port):
        return None  # an error, such as: there is no such socket
    if not _HEADER.size + _ANSWER.size <= length <= len(answer):
        return None
    family, state, _, _, ends, *_, uid, inode = _ANSWER.unpack_from(
        answer, _HEADER.size
    )
    if state != _ESTABLISHED or inode == 0 or _ends(family, ends) != wanted:
        return None
    return int(uid)


def _ends(family: int, ends: bytes) -> tuple[_End, _End]:
    size = 4 if family == socket.AF_INET else 16
    source, destination, first, second = _ENDS.unpack_from(ends)
    return (_plain(first[:size]), source), (_plain(second[:size]), destination)


@functools.cache
def _overflow_uid() -> int:
    """Return the uid that stands for all that have none in our user namespace."""
    with open("/proc/sys/kernel/overflowuid") as file:
        return int(file.read())


def in_container(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether uids may mean other people here than on the machine.

    True also where that cannot be told. /.dockerenv is no proof: images of virtual
    machines made from such ones have it.
    """
    if "container" in environ:
        return True
    if any(os.path.lexists(path) for path in _CONTAINER_FILES):
        return True
    with contextlib.suppress(OSError):
        return any(os.readlink(f"/proc/self/ns/{n}") != it for n, it in _FIRST.items())
    return True
