"""Who a client is: identified by the kernel, or by a password."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from rq.access import gate, kernel, logins
from rq.access.logins import Logins, User
from rq.access.roles import Principal, Role
from rq.config.settings import RootConfig
from rq.proc import peers
from rq.proc.users import kernel_name

DEFAULT = "default"  # the user of a client that gives a password and no name


def _own() -> dict[int, Role]:
    return {0: Role.ADMIN, os.getuid(): Role.ADMIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Whom a node knows, beside clients that have its password."""

    local: Mapping[int, Role] = field(default_factory=_own)  # by uid, of this machine
    users: Mapping[str, User] = field(default_factory=dict)  # with passwords


def people_of(config: RootConfig) -> People:
    """Return whom a root knows; BadConfig says what is wrong with one."""
    local = gate.local_roles(config, os.getuid())
    return People(local=local, users=logins.users(config))


class Door:
    """Says who a client is."""

    def __init__(self, password: str, people: People) -> None:
        """`password`: a hash; "": there is none."""
        self._users = people.users
        self._named = {
            uid: Principal(name=gate.user_name(uid), role=role, of=kernel_name(uid))
            for uid, role in people.local.items()
        }
        self.use_password(password)

    def use_password(self, password: str) -> None:
        """Accept this password from now on, and those of the users."""
        self.has_password = bool(password)
        users = dict(self._users)
        if password:
            users[DEFAULT] = User(name=DEFAULT, stored=password)
        self._logins = Logins(users)

    @property
    def has_users(self) -> bool:
        """Whether there are users beside that of the password."""
        return bool(self._users)

    @property
    def takes_passwords(self) -> bool:
        """Whether a client could give one."""
        return bool(self._logins.users)

    def named(self, sock: socket.socket) -> Principal | None:
        """Return who is at the other end by the kernel's word, if that is enough: over a
        Unix socket it is, over loopback where no password is set."""
        if sock.family == socket.AF_UNIX:
            uid: int | None = peers.peer_of(sock).uid
        else:
            uid = None if self.has_password else kernel.owner_of_peer(sock)
        return None if uid is None else self._named.get(uid)

    async def check(
        self, name: str, password: bytes, address: str, now: float
    ) -> Principal | None:
        """Return who has this name and password; None: no user has. TooOften: this address
        has guessed too often."""
        host = address.rpartition(":")[0]
        text = password.decode(errors="backslashreplace")
        user = await self._logins.check(name, text, host, now)
        return None if user is None else user.principal
