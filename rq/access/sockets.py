"""Who asks over a Unix socket, by the kernel's word, and what they may ask there."""

from __future__ import annotations

import functools
import grp
import logging
import os
import socket
from dataclasses import dataclass

from rq.access.roles import Principal, Role
from rq.errors import NotPermitted
from rq.proc import peers, users

log = logging.getLogger(__name__)

# The role of a user who can open a socket (by its mode and group) and has no other.
QUEUE_OTHERS = Role.OPERATOR  # what the ancestor allowed: all that is about messages
SUPERVISOR_OTHERS = Role.PRODUCER  # they look, and wake a queue
TIMERS_OTHERS = Role.PRODUCER


@dataclass(frozen=True, slots=True)
class Asker:
    """Whoever is at the other end of a Unix socket."""

    principal: Principal
    peer: peers.Peer
    is_own: bool  # RQ's own user or root: their word is believed

    def check(self, command: str, role: Role, own: bool = False) -> None:
        """NotPermitted unless they may ask `command`, which takes `role`, and with `own`
        RQ's own user or root."""
        if own and not self.is_own:
            whose = "RQ's own user and root alone"
        elif not self.principal.may(role):
            whose = "RQ's own user, root and the members of admin_group"
        else:
            return
        raise NotPermitted(
            f"{self.principal.name} may not ask {command}: it is for {whose}"
        )

    def believed(self, who: object) -> str:
        """Return who did something, for its story: RQ's own user and root may say for
        whom they act, all others are who the kernel says."""
        if self.is_own and isinstance(who, str) and who.strip().isprintable():
            return who.strip()[:100] or self.principal.name
        return self.principal.name


@dataclass(frozen=True, slots=True)
class Policy:
    """What a socket allows: `others` to whoever can open it, everything to the members
    of the group `admin_gid`, to RQ's own user and to root."""

    others: Role
    admin_gid: int | None = None

    def asker(self, sock: socket.socket) -> Asker:
        """Return who is at the other end; NotPermitted when the kernel cannot name them."""
        peer = peers.peer_of(sock)
        if peers.is_nameless(peer.uid):
            raise NotPermitted(
                f"the kernel does not say who asks: uid {peer.uid} stands for all users "
                "of other namespaces; ask from RQ's own, or as root"
            )
        if peer.uid in (0, os.getuid()):
            return Asker(_principal(peer.uid, Role.ADMIN), peer, True)
        role = Role.ADMIN if self._is_admin(sock, peer) else self.others
        return Asker(_principal(peer.uid, role), peer, False)

    def _is_admin(self, sock: socket.socket, peer: peers.Peer) -> bool:
        gid = self.admin_gid
        return gid is not None and (
            gid == peer.gid or gid in peers.groups_of(sock, peer)
        )


def policy(others: Role, admin_group: str | None) -> Policy:
    """Return the policy of a socket; a group that does not exist has no members."""
    if admin_group is None:
        return Policy(others)
    try:
        return Policy(others, grp.getgrnam(admin_group).gr_gid)
    except KeyError:
        log.warning("admin_group: there is no group %r here", admin_group)
        return Policy(others)


@functools.lru_cache(maxsize=256)
def _principal(uid: int, role: Role) -> Principal:
    return Principal(name=users.kernel_name(uid), role=role)
