"""How many connections there may be, in all and from one place, and which are closed for
others."""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
from collections import Counter
from dataclasses import dataclass, field

_SPARE = 64  # descriptors for all that is no connection
_FEWEST = 8
_PREFIX = 64  # bits: what one customer has of IPv6

Place = int | str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Visitor:
    """One connection, and whose it is."""

    sock: socket.socket
    place: Place  # the uid, else the address
    uid: int | None = None
    client: tuple[str, int] = ("", 0)  # address and port of the other end

    def end(self) -> None:
        """End the connection, at whatever step it is."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


@dataclass(slots=True)
class Visitors:
    """All connections of one process.

    One that waits for a request gives way to a new one: the longest waiting of the place
    that has the most. So a place that opens many connections loses its own first.
    """

    most: int  # in all
    most_of_one: int  # of one place
    _count: Counter[Place] = field(default_factory=Counter)
    _all: dict[Visitor, None] = field(default_factory=dict)
    _waiting: dict[Place, dict[Visitor, None]] = field(default_factory=dict)

    def admit(self, visitor: Visitor) -> bool:
        """Take a new connection in, perhaps for another one; False: there is no room."""
        if self._count[visitor.place] >= self.most_of_one:
            if not self._end_one(visitor.place):
                return False
        elif len(self._all) >= self.most and not self.end_some(1):
            return False
        self._all[visitor] = None
        self._count[visitor.place] += 1
        self.waits(visitor)
        return True

    def waits(self, visitor: Visitor) -> None:
        """Note that it is between two requests, or before its first."""
        if visitor in self._all:
            self._waiting.setdefault(visitor.place, {})[visitor] = None

    def answers(self, visitor: Visitor) -> None:
        """Note that the client was let in and is being answered."""
        if waiting := self._waiting.get(visitor.place):
            waiting.pop(visitor, None)

    def leave(self, visitor: Visitor) -> None:
        if visitor not in self._all:
            return
        self.answers(visitor)
        del self._all[visitor]
        self._count[visitor.place] -= 1
        if not self._count[visitor.place]:
            del self._count[visitor.place]
            self._waiting.pop(visitor.place, None)

    def end_some(self, number: int) -> int:
        """End up to `number` that wait; return how many."""
        for ended in range(number):
            places = [place for place, waiting in self._waiting.items() if waiting]
            if not places:
                return ended
            self._end_one(max(places, key=self._count.__getitem__))
        return number

    def _end_one(self, place: Place) -> bool:
        waiting = self._waiting.get(place)
        if not waiting:
            return False
        visitor = next(iter(waiting))
        self.leave(visitor)
        visitor.end()
        return True


def for_limit(wanted: int) -> Visitors:
    """Return room for `wanted` connections, or for as many as descriptors allow: one
    each, and one for the file that it may be sent."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        limit = wanted * 2 + _SPARE
    most = max(_FEWEST, min(wanted, (limit - _SPARE) // 2))
    return Visitors(most, max(1, most // 2))


def place_of(address: str, uid: int | None) -> Place:
    """Return what connections are counted by.

    >>> place_of("127.0.0.1", 1000), place_of("127.0.0.1", None)
    (1000, '127.0.0.1')
    >>> place_of("::ffff:192.0.2.7", None), place_of("2001:db8::1:2:3:4", None)
    ('192.0.2.7', '2001:db8::/64')
    """
    if uid is not None:
        return uid
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _PREFIX), strict=False))
