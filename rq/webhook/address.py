"""Where a request may go: not to what only this machine or its network can reach.

The name is looked up once, and the connection goes to an address that was checked, so
that no second look-up can lead elsewhere.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rq.errors import BadConfig, Refused

_IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Of these the inner address counts.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
# Not global, whatever the library's version says of them.
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24", "192.88.99.0/24"),
    )
)


class Internal(Refused):
    """All addresses of a host are internal ones that are not allowed."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Internal hosts and networks that may be told nevertheless."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[_Network, ...] = field(default=())

    def takes(self, host: str, ip: _IP) -> bool:
        return host in self.hosts or any(_within(ip, one) for one in self.networks)


def allowed(texts: Iterable[str]) -> Allowed:
    """Return what a list of networks, addresses and names of hosts allows."""
    hosts: set[str] = set()
    networks: list[_Network] = []
    for text in texts:
        if _looks_like_a_name(text):
            hosts.add(text.lower().rstrip("."))
            continue
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise BadConfig(f"allow: {error}") from None
    return Allowed(frozenset(hosts), tuple(networks))


def _looks_like_a_name(text: str) -> bool:
    return not ("/" in text or ":" in text or text.replace(".", "").isdigit())


def _within(ip: _IP, network: _Network) -> bool:
    return ip.version == network.version and ip in network


def find(host: str, port: int, allow: Allowed) -> list[tuple[int, Any]]:
    """Return (family, socket address) of a host, to be tried in this order; Internal
    when none of them may be used. OSError when there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    known: list[tuple[int, Any]] = [(one[0], one[4]) for one in found]
    name = host.lower().rstrip(".")
    good = [
        (family, address)
        for family, address in known
        if is_public(ip := _ip(address)) or allow.takes(name, ip)
    ]
    if not good:
        shown = ", ".join(sorted({str(address[0]) for _, address in known}))
        raise Internal(
            f"{host} is {shown}, an internal address; config/webhooks.json may allow it"
        )
    return good


def _ip(address: Any) -> _IP:
    return _inner(ipaddress.ip_address(str(address[0]).partition("%")[0]))


def _inner(ip: _IP) -> _IP:
    """Return the IPv4 address that an IPv6 one stands for, if it does."""
    if ip.version == 4:
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip.sixtofour is not None:
        return ip.sixtofour
    if ip.teredo is not None:
        return ip.teredo[1]
    is_short = ip in _COMPATIBLE and int(ip) > 1  # ::1 and :: are their own
    if ip in _NAT64 or is_short:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip


def is_public(ip: _IP) -> bool:
    """Return whether an address is anybody's to reach, and one host's.

    >>> [is_public(ipaddress.ip_address(a)) for a in ("8.8.8.8", "169.254.169.254")]
    [True, False]
    """
    ip = _inner(ip)
    if any(_within(ip, one) for one in _NEVER):
        return False
    return ip.is_global and not ip.is_multicast
