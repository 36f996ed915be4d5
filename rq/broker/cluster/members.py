"""Who belongs to the cluster, and who answers. Pure.

Inputs are commands, what comes from other nodes, links that stand or break, and a tick
ten times a second; outputs are `letters`, `cut` and `changed`, which the bus takes. What this says steers where copies go; no work needs a majority.
A node that is silent for the node time-out is suspected; when most nodes suspect it, it has
failed; one answer clears both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from rq.broker.cluster.gossip import (
    MARKS,
    Address,
    Ends,
    Forget,
    Gossip,
    Greeting,
    HasFailed,
    Kind,
    Rumour,
)

TIMEOUT = 15.0  # seconds of silence until a node is suspected
TICK = 0.1  # seconds between two looks at all
_ROUND = 1.0  # seconds between two pings at random
_DRAWN = 5  # nodes, of which the one silent for longest is pinged
_BANNED = 60.0  # seconds that gossip does not bring back who was forgotten
_LEAST_HANDSHAKE = 1.0  # seconds that a handshake may take, at least
_MOST_HANDSHAKES = 64  # that gossip begins at a time
MOST_MEMBERS = 1000
_STOPPED = 1.0  # seconds without a tick: it was this node that did not listen
_ID_BYTES = 20


@dataclass(slots=True)
class Member:
    """Another node; times are seconds of the broker's clock, 0.0 stands for never."""

    node_id: str  # drawn, until a node in handshake has said its own
    address: Address
    since: float
    in_handshake: bool = False
    is_kept: bool = False  # on disk: a start knows it again
    meets: bool = False  # its next greeting asks it to take us in
    leaving: bool = False
    suspected: bool = False
    failed: bool = False
    linked_at: float = 0.0  # since when our connection to it stands
    pinged_at: float = 0.0
    silent_since: float = 0.0  # it should have answered since then
    pong_at: float = 0.0
    takes_marks: bool | None = None  # None: it has said nothing since the link stands
    lines: int = 0  # durable lines of its journal, the most that it said to have
    lag: float = 0.0  # seconds from its last ping to the answer
    # Who holds that it does not answer, and since when that is said.
    reports: dict[str, float] = field(default_factory=dict)

    @property
    def is_linked(self) -> bool:
        """Whether our connection to it stands."""
        return self.linked_at > 0

    @property
    def is_doubted(self) -> bool:
        """Whether it may be away."""
        return self.suspected or self.failed

    @property
    def is_counted(self) -> bool:
        """Whether new copies of jobs may be meant for it, though its link is broken: for
        a moment, or it will be doubted."""
        is_fit = not (self.in_handshake or self.leaving or self.is_doubted)
        return self.is_kept and is_fit

    @property
    def is_usable(self) -> bool:
        """Whether new copies of jobs may be sent to it."""
        return self.is_linked and self.is_counted

    def is_silent(self, now: float) -> None:
        """Count from now, unless it should have answered before."""
        self.silent_since = self.silent_since or now


class Members:
    """The other nodes; as Peers, for those who keep and move jobs."""

    def __init__(self, node_id: str, random: Random, address: Address) -> None:
        """`address`: of this node; its host is learned from others."""
        self.node_id = node_id
        self.address = address
        self.leaving = False  # this node the cluster
        self.timeout = TIMEOUT
        self.by_id: dict[str, Member] = {}
        self.letters: list[tuple[str, Gossip]] = []  # for links that stand
        self.cut: list[str] = []  # links that are to be made again
        self.changed = False  # since it was kept on disk
        self.forgotten: set[tuple[str, str]] = set()  # by whom, who: as others say
        self.lines = 0  # durable lines of this node's journal, since ever
        self.is_outdated = False  # others know of more: the disk is an old copy
        self.full: set[str] = set()  # links for which much waits
        self._banned: dict[str, float] = {}  # and until when
        self._random = random
        self._round_at = self._ticked_at = 0.0
        self._said_leaving = False

    # ---- what others want to know

    @property
    def others(self) -> tuple[str, ...]:
        """Ids of all other members, those that do not answer too; none in handshake."""
        return tuple(m.node_id for m in self._members)

    @property
    def reachable(self) -> tuple[str, ...]:
        """Ids of those that new copies may be sent to."""
        return tuple(m.node_id for m in self.by_id.values() if m.is_usable)

    @property
    def counted(self) -> tuple[str, ...]:
        """Ids of those that new copies may be meant for."""
        return tuple(m.node_id for m in self.by_id.values() if m.is_counted)

    @property
    def doubted(self) -> frozenset[str]:
        """Ids of those that do not answer."""
        return frozenset(m.node_id for m in self._members if m.is_doubted)

    def has_room(self, node_id: str) -> bool:
        """Whether our link to a member stands, and little waits for it."""
        member = self.by_id.get(node_id)
        return member is not None and member.is_linked and node_id not in self.full

    def takes_marks(self, node_id: str) -> bool | None:
        """Whether a member takes marks; None: it has said nothing yet."""
        member = self.by_id.get(node_id)
        return None if member is None else member.takes_marks

    @property
    def size(self) -> int:
        """How many members there are, with this one."""
        return 1 + len(self._members)

    @property
    def _members(self) -> list[Member]:
        return [m for m in self.by_id.values() if not m.in_handshake]

    def is_member(self, node_id: str) -> bool:
        """Whether a node belongs to the cluster, so that what it says counts."""
        member = self.by_id.get(node_id)
        return member is not None and not member.in_handshake

    # ---- what a person asks for

    def meet(self, address: Address, now: float) -> None:
        """Begin to know the node at an address, and tell it of this one."""
        for member in self.by_id.values():
            if member.in_handshake and member.address == address:
                member.meets = True
                return
        self._shake(address, now, meets=True)

    def forget(self, node_id: str, now: float) -> None:
        """Remove a node from the cluster, even one that is unknown."""
        self.by_id.pop(node_id, None)
        self._banned[node_id] = now + _BANNED
        for member in self.by_id.values():
            member.reports.pop(node_id, None)
        self.changed = True

    def reset(self, node_id: str) -> None:
        """Be alone again, under this id."""
        self.by_id.clear()
        self._banned.clear()
        self.node_id = node_id
        self.changed = True

    def rename(self, node_id: str) -> None:
        """Be another node, and tell those that know this one."""
        self.node_id = node_id
        self.is_outdated = False
        for member in self.by_id.values():
            member.meets, member.linked_at, member.lines = True, 0.0, 0

    def load(self, kept: Iterable[tuple[str, Address]], now: float) -> None:
        """Know again who belonged to the cluster."""
        for node_id, address in kept:
            self.by_id[node_id] = Member(
                node_id, address, now, is_kept=True, silent_since=now
            )

    def kept(self, node_ids: Iterable[str]) -> None:
        """Those are on disk, so that a start knows them again."""
        for node_id in node_ids:
            if (member := self.by_id.get(node_id)) is not None:
                member.is_kept = True

    # ---- links, whose names are the ids of members

    def linked(self, name: str, node_id: str, now: float) -> str | None:
        """Our connection to a member stands, and its end has proved this id. Return the
        link's name from now on; None: it is of no use."""
        member = self.by_id.get(name)
        if member is None:
            return None
        if member.in_handshake:
            return self._shaken(member, node_id, now)
        if node_id != name:
            return None  # another node has come to its place
        self._greet_first(member, now)
        return name

    def unlinked(self, name: str, now: float) -> None:
        """Our connection to a member is gone, or could not be made."""
        if (member := self.by_id.get(name)) is not None:
            member.linked_at = 0.0
            member.is_silent(now)

    def _shaken(self, member: Member, node_id: str, now: float) -> str | None:
        """End a handshake: the node has said who it is."""
        del self.by_id[member.node_id]
        if node_id == self.node_id:
            return None
        if (namesake := self.by_id.get(node_id)) is not None:
            self._met_again(namesake, member, now)
            return None
        member.node_id, member.in_handshake = node_id, False
        self.by_id[node_id] = member
        self.changed = True
        self._greet_first(member, now)
        return node_id

    def _met_again(self, member: Member, shaken: Member, now: float) -> None:
        """Take what a handshake with a known node has shown: where it is."""
        member.meets = member.meets or shaken.meets
        if member.is_linked:
            self._ping(member, now)
        elif member.address != shaken.address:
            member.address = shaken.address
            self.changed = True

    def _greet_first(self, member: Member, now: float) -> None:
        member.linked_at, member.takes_marks = now, None
        self._ping(member, now)

    # ---- what other nodes say

    def receive(
        self, sender: str, gossip: Gossip, ends: Ends, now: float
    ) -> Gossip | None:
        """Take what a node says; return what it is answered over the same connection."""
        member = self.by_id.get(sender)
        if isinstance(gossip, HasFailed):
            self._take_failure(member, gossip)
            return None
        if isinstance(gossip, Forget):
            return self._take_forgetting(sender, gossip, now)
        if member is not None:
            self._take_greeting(member, gossip, ends, now)
        if gossip.kind is Kind.PONG:
            return None
        if ends.here and (gossip.kind is Kind.MEET or not self.address.host):
            self._be_at(ends.here)
        if member is None and gossip.kind is Kind.MEET and ends.there:
            place = Address(ends.there, gossip.port, gossip.bus_port)
            self._shake(place, now, node_id=sender)
        if member is None and sender in self._banned and gossip.kind is Kind.PING:
            return None
        return self._greeting(Kind.PONG, sender)

    def _be_at(self, host: str) -> None:
        if host != self.address.host:
            self.address = self.address._replace(host=host)
            self.changed = True

    def _take_forgetting(
        self, sender: str, gossip: Forget, now: float
    ) -> Forget | None:
        """Forget a node as another member was asked to; all, if it is this one."""
        if not self.is_member(sender):
            return None
        if gossip.is_done:
            self.forgotten.add((sender, gossip.node))
            return None
        if gossip.node == self.node_id:
            self.reset(self.node_id)
        else:
            self.forget(gossip.node, now)
        return Forget(gossip.node, True)

    def _take_failure(self, sender: Member | None, gossip: HasFailed) -> None:
        member = self.by_id.get(gossip.node)
        if sender is None or sender.in_handshake or member is None:
            return
        member.failed, member.suspected = True, False

    def _take_greeting(
        self, member: Member, greeting: Greeting, ends: Ends, now: float
    ) -> None:
        if greeting.kind is Kind.PONG:
            member.pong_at, member.silent_since = now, 0.0
            member.lag = now - member.pinged_at
            member.suspected = member.failed = False
        if member.in_handshake:
            return
        member.leaving = greeting.leaving
        member.lines = max(member.lines, greeting.lines)
        if greeting.remembers > self.lines:
            self.is_outdated = True
        place = Address(ends.there, greeting.port, greeting.bus_port)
        if member.is_linked:  # it is where we thought; its clients may come elsewhere
            place = member.address._replace(port=greeting.port)
        if place.host and place != member.address:
            member.address = place
            self.changed = True
        member.takes_marks = any(
            (each.node, each.address) == (self.node_id, MARKS)
            for each in greeting.rumours
        )
        for rumour in greeting.rumours:
            self._take_rumour(member, rumour, now)

    def _take_rumour(self, sender: Member, rumour: Rumour, now: float) -> None:
        if rumour.node == self.node_id:
            return
        member, is_doubted = (
            self.by_id.get(rumour.node),
            rumour.suspected or rumour.failed,
        )
        if member is None:
            if rumour.node not in self._banned and self._may_shake(rumour.address):
                self._shake(rumour.address, now, node_id=rumour.node)
            return
        if is_doubted:
            member.reports[sender.node_id] = now
            return
        member.reports.pop(sender.node_id, None)
        has_moved = rumour.address != member.address
        if member.is_doubted and has_moved and self._may_shake(rumour.address):
            self._shake(rumour.address, now)

    def _may_shake(self, address: Address) -> bool:
        shaking = [m.address for m in self.by_id.values() if m.in_handshake]
        has_room = len(shaking) < _MOST_HANDSHAKES and len(self.by_id) < MOST_MEMBERS
        return bool(address.host) and has_room and address not in shaking

    def _shake(
        self, address: Address, now: float, *, node_id: str = "", meets: bool = False
    ) -> None:
        name = node_id or self._random.randbytes(_ID_BYTES).hex()
        self.by_id[name] = Member(name, address, now, in_handshake=True, meets=meets)

    # ---- what this node says

    def _greeting(self, kind: Kind, to: str) -> Greeting:
        _, port, bus_port = self.address
        member, rumours = self.by_id.get(to), self._rumours(to)
        remembers = 0 if member is None else member.lines
        rumours = (*rumours, Rumour(to, MARKS, False, False))
        return Greeting(
            kind, port, bus_port, self.leaving, rumours, self.lines, remembers
        )

    def _rumours(self, to: str) -> tuple[Rumour, ...]:
        """Return what is said of some others: of those that do not answer first, for
        only what many say of them counts."""
        members = [m for m in self._members if m.node_id != to and m.address.host]
        most = max(3, len(members) // 10)
        doubted = [m for m in members if m.is_doubted]
        fit = [m for m in members if m.is_linked and not m.is_doubted]
        chosen = self._random.sample(doubted, min(len(doubted), most))
        chosen += self._random.sample(fit, min(len(fit), max(1, most - len(chosen))))
        return tuple(
            Rumour(m.node_id, m.address, m.suspected, m.failed) for m in chosen
        )

    def _ping(self, member: Member, now: float) -> None:
        kind = Kind.MEET if member.meets else Kind.PING
        member.meets = False
        member.pinged_at = now
        member.is_silent(now)
        self.letters.append((member.node_id, self._greeting(kind, member.node_id)))

    # ---- time

    def tick(self, now: float) -> None:
        """Do what is due by now."""
        self._listen_again(now)
        self._end_handshakes(now)
        if self.leaving is not self._said_leaving:
            self._said_leaving = self.leaving
            self._ping_all(now)
        if now - self._round_at >= _ROUND:
            self._round_at = now
            self._ping_longest_silent(now)
        for member in self._members:
            self._look_at(member, now)
        self._banned = {name: end for name, end in self._banned.items() if end > now}

    def _listen_again(self, now: float) -> None:
        """Do not hold against others a time in which this node did not run."""
        gap = now - self._ticked_at
        if self._ticked_at and gap > _STOPPED:
            for member in self.by_id.values():
                member.since += gap
                member.silent_since += gap if member.silent_since else 0.0
        self._ticked_at = now

    def _end_handshakes(self, now: float) -> None:
        patience = max(self.timeout, _LEAST_HANDSHAKE)
        over = [
            name
            for name, member in self.by_id.items()
            if member.in_handshake and now - member.since > patience
        ]
        for name in over:
            del self.by_id[name]

    def _ping_longest_silent(self, now: float) -> None:
        """Ping who is silent for longest, of some at random."""
        linked = [m for m in self._members if m.is_linked]
        drawn = self._random.sample(linked, min(_DRAWN, len(linked)))
        if drawn:
            self._ping(min(drawn, key=lambda member: member.pong_at), now)

    def _ping_all(self, now: float, but: Member | None = None) -> None:
        for member in self._members:
            if member.is_linked and member is not but:
                self._ping(member, now)

    def _look_at(self, member: Member, now: float) -> None:
        half, silent = self.timeout / 2, member.silent_since
        if member.is_linked and not silent and now - member.pong_at > half:
            self._ping(member, now)
        is_old = member.is_linked and now - member.linked_at > self.timeout
        if is_old and silent and now - silent > half:
            member.linked_at = 0.0
            self.cut.append(member.node_id)
        if silent and now - silent > self.timeout and not member.is_doubted:
            member.suspected = True
            # Others hear at once which node does not answer, and say what they hold.
            self._ping_all(now, but=member)
        if member.suspected:
            self._judge(member, now)

    def _judge(self, member: Member, now: float) -> None:
        """Count a suspected node as failed when most members say so."""
        member.reports = {
            name: at
            for name, at in member.reports.items()
            if now - at <= 2 * self.timeout and self.is_member(name)
        }
        if 1 + len(member.reports) < self.size // 2 + 1:
            return
        member.failed, member.suspected = True, False
        for other in self._members:
            if other.is_linked and other is not member:
                self.letters.append((other.node_id, HasFailed(member.node_id)))
