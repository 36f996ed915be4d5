"""The gate of the web: what is known of a request becomes a Principal, or a refusal.

Deny by default: a request that no rule lets in is refused, before anybody looks at what
it asks for.
"""

from __future__ import annotations

import grp
import ipaddress
import logging
import pwd
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rq import names
from rq.access.roles import Principal, Role
from rq.config.settings import RootConfig
from rq.errors import BadConfig, NotKnown, NotPermitted, WrongHost
from rq.proc import users

ANYBODY = "anybody"
log = logging.getLogger(__name__)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

NO_NAME = ""
_LOOPBACKS = {ipaddress.ip_address(text) for text in ("127.0.0.1", "::1")}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """What the gate looks at in whoever asks."""

    address: str  # of the other end of the connection
    host: str | None  # the header Host, None where there is none
    uid: int | None  # the user of this machine who asks, where the kernel names one
    forwarded: bool  # somebody in between says so

    @property
    def user(self) -> int | None:
        """Return the uid of the asker. A proxy's own uid says nothing of its clients."""
        return None if self.forwarded else self.uid


class Gate:
    """The rules of one config for who is let in without a login."""

    def __init__(self, config: RootConfig, own_uid: int) -> None:
        own = {config.host.lower(), config.addr.strip("[]").lower()}
        self._hosts = (_LOOPBACK_NAMES | own) - {NO_NAME}
        self._networks = networks(config)
        self._relays = _addresses_of(config.trusted_relays)
        # Their names are looked up now: not a request of them reads /etc/passwd.
        self._locals = {
            uid: Principal(name=user_name(uid), role=role, of=users.kernel_name(uid))
            for uid, role in local_roles(config, own_uid).items()
        }
        self._is_open = config.open_without_auth and not config.basic_auth
        self._needs_login = bool(config.basic_auth)

    def check_address(self, asker: Asker) -> None:
        """Raise NotPermitted for an address that `allowed_ips` leaves out."""
        if not self._networks:
            return
        address = _address(asker.address)
        # A client that may come over one loopback may come over the other: browsers that say
        # `localhost` try ::1 first.
        either = _LOOPBACKS if address in _LOOPBACKS else {address}
        if not any(a in network for a in either if a for network in self._networks):
            raise NotPermitted("This address is not among the allowed_ips.")

    def trusts_relay(self, asker: Asker) -> bool:
        """Whether `trusted_relays` names the host that asks; a proxy is no such host."""
        return not asker.forwarded and _address(asker.address) in self._relays

    def admit(self, asker: Asker) -> Principal:
        """Return who asks, of a request without credentials.

        NotKnown: a login is needed. NotPermitted: this user of the machine has no right
        to ask. WrongHost: the name in Host is not ours, so a hostile page may have sent
        a browser here.
        """
        principal = self._without_login(asker)
        if asker.host is not None and host_of(asker.host) not in self._hosts:
            raise WrongHost(
                "Without a login RQ answers only to the names localhost, 127.0.0.1, "
                "[::1], and to host and addr of its config; a name that any page on "
                "the net can point here is refused."
            )
        return principal

    def _without_login(self, asker: Asker) -> Principal:
        if self._needs_login:
            raise NotKnown("A login is needed here: a name and a password, or a token.")
        uid = asker.user
        if uid is not None and (principal := self._locals.get(uid)):
            return principal
        if self._is_open:
            return Principal(name=ANYBODY, role=Role.ADMIN)
        if uid is not None:
            raise NotPermitted(
                f"User {user_name(uid)} of this machine has no right to ask this RQ: "
                "sign in with a token (`rq token create`), or let an administrator add "
                "the user to local_users in config/config.json."
            )
        if asker.forwarded:
            raise NotKnown(
                "A request that a proxy passes on needs a login or a token "
                "(`rq token create`)."
            )
        raise NotKnown(
            "RQ cannot tell who asks, so a token is needed (`rq token create`)."
        )


def local_roles(config: RootConfig, own_uid: int) -> dict[int, Role]:
    """Return the role of each user of this machine who needs no login.

    BadConfig names a user or a group that does not exist.
    """
    roles: dict[int, Role] = {}
    for group, role in config.local_groups.items():
        for uid in group_members(group):
            roles[uid] = _higher(roles.get(uid), _role(role, "local_groups"))
    for name, role in config.local_users.items():
        uid = _uid_of(name)
        roles[uid] = _higher(roles.get(uid), _role(role, "local_users"))
    return {**roles, 0: Role.ADMIN, own_uid: Role.ADMIN}


def group_members(group: str) -> set[int]:
    """Return the uids of a group's members, primary or not; BadConfig for no group."""
    try:
        entry = grp.getgrnam(group)
    except KeyError:
        raise BadConfig(f"local_groups: there is no group {group}") from None
    primary = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == entry.gr_gid}
    listed = {_uid_or_none(name) for name in entry.gr_mem}
    return primary | {uid for uid in listed if uid is not None}


def user_name(uid: int) -> str:
    """Return the name of a user, or `uid N` for one without."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _uid_of(name: str) -> int:
    uid = int(name) if name.isascii() and name.isdigit() else _uid_or_none(name)
    if uid is None:
        raise BadConfig(f"local_users: there is no user {name} on this machine")
    return uid


def _uid_or_none(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _higher(role: Role | None, other: Role) -> Role:
    """Return the role that covers the other one, else `other`, which is named later."""
    return role if role is not None and role.covers(other) else other


def _role(text: str, of: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        roles = ", ".join(Role)
        raise BadConfig(
            f"{of}: {text!r:.40} is no role; the roles are {roles}"
        ) from None


def networks(config: RootConfig) -> list[Network]:
    """Return `allowed_ips` as networks; BadConfig names the wrong one."""
    try:
        return [ipaddress.ip_network(text, strict=False) for text in config.allowed_ips]
    except ValueError as error:
        raise BadConfig(
            f"allowed_ips: {error}; say 192.0.2.7 or 192.0.2.0/24"
        ) from None


def _addresses_of(hosts: Sequence[str]) -> frozenset[Address]:
    """Return the addresses of hosts; one whose name means nothing now has none."""
    addresses: set[Address] = set()
    for host in hosts:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            log.warning("trusted_relays: %s has no address: %s", host, error)
            continue
        ours = (_address(str(info[4][0])) for info in infos)
        addresses.update(address for address in ours if address is not None)
    return frozenset(addresses)


def _address(text: str) -> Address | None:
    """Return an address, ::ffff:192.0.2.7 as 192.0.2.7; None for what is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def host_of(header: str) -> str:
    """Return the name in a Host header, without port and brackets; NO_NAME: it has none.

    >>> host_of("LOCALHOST.:3333"), host_of("[::1]:3333"), host_of("[::1].evil.example")
    ('localhost', '::1', '')
    """
    try:
        return names.authority(header.strip())[0].rstrip(".")
    except ValueError:
        return NO_NAME


_FORWARDED = (
    "forwarded",
    "via",
    "x-forwarded",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
)


def is_forwarded(headers: Iterable[str]) -> bool:
    """Return whether headers (names in lower case) show a proxy in between."""
    return any(name.startswith(_FORWARDED) for name in headers)
