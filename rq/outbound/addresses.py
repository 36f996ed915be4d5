"""Where a request may go: not to what only this machine or its network can reach.

A name is looked up once, and the connection goes to an address that was judged, so that
no second look-up can lead elsewhere.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rq.errors import BadInput, Refused

_IPv4, _IPv6 = ipaddress.IPv4Address, ipaddress.IPv6Address
IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Place = tuple[int, Any]  # family, socket address


def _networks(*texts: str) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


# Written out, for versions of the library differ in what they hold for global.
_INTERNAL = _networks(
    "0.0.0.0/8",  # this network
    "10.0.0.0/8",
    "100.64.0.0/10",  # behind a carrier's NAT
    "127.0.0.0/8",
    "168.63.129.16/32",  # a cloud's own services, at an address that looks public
    "169.254.0.0/16",  # link-local, metadata of clouds
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",  # documentation, as the next two
    "198.51.100.0/24",
    "203.0.113.0/24",
    "192.88.99.0/24",  # relays of 6to4
    "192.168.0.0/16",
    "198.18.0.0/15",  # benchmarks
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
    "2001::/23",  # protocols
    "2001:db8::/32",  # documentation
    "3fff::/20",  # documentation
)
_GLOBAL = ipaddress.IPv6Network("2000::/3")  # all that is given to hosts of the net
# An IPv4 address in the last 32 bits, which a router or the kernel would go to.
_HOLDING = tuple(
    map(
        ipaddress.IPv6Network,
        ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96"),
    )
)
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})  # the third quarter of an address


class Internal(Refused):
    """All addresses of a host are internal ones that are not allowed."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Internal hosts and networks that may be asked nevertheless, each at a port or,
    with None, at all."""

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[tuple[_Network, int | None], ...] = field(default=())

    def takes(self, host: str, port: int, ip: IP) -> bool:
        if not self.hosts.isdisjoint({(host, None), (host, port)}):
            return True
        return any(at in (None, port) and _within(ip, net) for net, at in self.networks)

    def and_also(self, other: Allowed) -> Allowed:
        return Allowed(self.hosts | other.hosts, self.networks + other.networks)


def allowed(texts: Iterable[str]) -> Allowed:
    """Return what a list of networks, addresses and names of hosts allows; BadInput."""
    hosts: set[tuple[str, int | None]] = set()
    networks: list[tuple[_Network, int | None]] = []
    for text in texts:
        host, port = split_port(text)
        if _looks_like_a_name(host):
            hosts.add((plain(host), port))
            continue
        try:
            networks.append((ipaddress.ip_network(host), port))
        except ValueError as error:
            raise BadInput(f"allow: {error}") from None
    return Allowed(frozenset(hosts), tuple(networks))


def split_port(text: str) -> tuple[str, int | None]:
    """Return host and port of `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.

    >>> [split_port(text) for text in ("a:80", "::1", "[::1]:80", "[::1]", "10.0.0.0/8")]
    [('a', 80), ('::1', None), ('::1', 80), ('::1', None), ('10.0.0.0/8', None)]
    """
    host, port = text, ""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        if port and not port.startswith(":"):
            raise BadInput(f"allow: {text!r:.80} is not [ADDRESS] or [ADDRESS]:PORT")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not host.isprintable() or set(host) & set(" \t@?#\\"):
        raise BadInput(f"allow: {text!r:.80} is not HOST or HOST:PORT")
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise BadInput(f"allow: {text!r:.80}: the port is not a number up to 65535")
    return host, int(port)


def plain(host: str) -> str:
    """Return a host as names are compared."""
    return host.lower().rstrip(".")


def _looks_like_a_name(text: str) -> bool:
    return not ("/" in text or ":" in text or text.replace(".", "").isdigit())


def _within(ip: IP, network: _Network) -> bool:
    return ip.version == network.version and ip in network


def find(host: str, port: int, allow: Allowed) -> list[Place]:
    """Return where a host may be asked, to be tried in this order; Internal when there
    is no such address. OSError when it has none at all."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    places: list[Place] = [(family, address) for family, _, _, _, address in infos]
    good = [place for place in places if _may_ask(plain(host), port, place, allow)]
    if not good:
        raise Internal(_internal(host, {str(address[0]) for _, address in places}))
    return good


def check_written(host: str, port: int, allow: Allowed) -> None:
    """Internal when a host that is written as an address, in whatever way, may not be
    asked. No name is looked up: one says nothing yet, but for `localhost`."""
    name = plain(host)
    is_local = name == "localhost" or name.endswith(".localhost")
    try:
        infos = socket.getaddrinfo(
            "127.0.0.1" if is_local else host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST,
        )
    except (OSError, UnicodeError):
        return
    places: list[Place] = [(family, address) for family, _, _, _, address in infos]
    if not any(_may_ask(name, port, place, allow) for place in places):
        raise Internal(_internal(host, {str(address[0]) for _, address in places}))


def _internal(host: str, texts: set[str]) -> str:
    """Return why a host may not be asked, all of whose addresses are internal.

    >>> _internal("127.0.0.1", {"127.0.0.1"})
    '127.0.0.1 is an internal address'
    >>> _internal("db", {"10.0.0.7", "10.0.0.8"})
    'db has only internal addresses (10.0.0.7, 10.0.0.8)'
    """
    if texts == {host.strip("[]")}:
        return f"{host} is an internal address"
    if len(texts) == 1:
        return f"{host} is {min(texts)}, an internal address"
    return f"{host} has only internal addresses ({', '.join(sorted(texts))})"


def _may_ask(host: str, port: int, place: Place, allow: Allowed) -> bool:
    outer = ip_of(place)
    if allow.takes(host, port, outer):
        return True
    return all(
        allow.takes(host, port, ip) or (is_public(ip) and not is_own(ip))
        for ip in leads_to(outer)
    )


def ip_of(place: Place) -> IP:
    return ipaddress.ip_address(str(place[1][0]).partition("%")[0])


def leads_to(ip: IP) -> tuple[IP, ...]:
    """Return all addresses that what is sent to `ip` may come to."""
    if isinstance(ip, _IPv4):
        return (ip,)
    low = int(ip) & 0xFFFFFFFF
    if any(ip in network for network in _HOLDING) and int(ip) > 1:  # not :: and ::1
        return (_IPv4(low),)
    if ip.sixtofour is not None:
        return (ip.sixtofour,)
    if ip.teredo is not None:
        return ip.teredo
    if (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP:
        return (ip, _IPv4(low))
    return (ip,)


def is_public(ip: IP) -> bool:
    """Return whether an address is anybody's to reach, and one host's.

    >>> [is_public(ipaddress.ip_address(a)) for a in ("8.8.8.8", "169.254.169.254")]
    [True, False]
    """
    return all(map(_is_public, leads_to(ip)))


def _is_public(ip: IP) -> bool:
    if any(_within(ip, network) for network in _INTERNAL):
        return False
    if isinstance(ip, _IPv6) and ip not in _GLOBAL:
        return False
    return ip.is_global and not ip.is_multicast


def is_own(ip: IP) -> bool:
    """Return whether an address is one of this machine. The kernel says so without a
    packet: what goes to an own address comes from there."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    with (
        contextlib.suppress(OSError),
        socket.socket(family, socket.SOCK_DGRAM) as probe,
    ):
        probe.connect((str(ip), 9))
        return ipaddress.ip_address(probe.getsockname()[0]) == ip
    return False


def is_loopback(place: Place) -> bool:
    """Return whether an address is this machine's loopback."""
    return all(ip.is_loopback for ip in leads_to(ip_of(place)))
