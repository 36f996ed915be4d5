"""Nodes that know each other in memory, over a network that a test may cut."""

from __future__ import annotations

from random import Random

from rq.broker.cluster.gossip import Address, Ends
from rq.broker.cluster.members import TICK, Members

BUS = 10_000


class Network:
    """Members of some nodes, their links, and one clock. Nodes are called by numbers."""

    def __init__(self, number, timeout=3.0, seed=1):
        self.now = 1000.0
        self.nodes = []
        self.dead = set()
        self.no_disk = set()  # whose disks take nothing
        self.cuts = set()  # pairs of which the first does not reach the second
        self.sent = 0
        for index in range(number):
            self.add(index, Random(f"{seed} {index}"), timeout)

    def add(self, index, random, timeout):
        node_id = random.randbytes(20).hex()
        members = Members(node_id, random, Address("", 7000 + index, BUS + index))
        members.timeout = timeout
        self.nodes.append(members)

    def host(self, index):
        return f"10.0.0.{index}"

    def address(self, index):
        return Address(self.host(index), 7000 + index, BUS + index)

    def meet(self, from_, to):
        self.nodes[from_].meet(self.address(to), self.now)

    def reaches(self, from_, to):
        return (from_, to) not in self.cuts and not {from_, to} & self.dead

    def kill(self, index):
        """End a node; the connections of others to it break at once."""
        self.dead.add(index)
        for members in self.nodes:
            for name, member in members.by_id.items():
                if member.is_linked and self.at(member.address) == index:
                    members.unlinked(name, self.now)

    def restart(self, index):
        """Start a node again with what it kept."""
        self.dead.discard(index)
        old = self.nodes[index]
        new = Members(old.node_id, Random(index), old.address)
        new.timeout = old.timeout
        kept = [(name, old.by_id[name].address) for name in old.others]
        new.load(kept, self.now)
        self.nodes[index] = new

    def at(self, address):
        """Return which node has an address; None: nobody."""
        number = address.port - 7000
        is_there = 0 <= number < len(self.nodes) and self.address(number) == address
        return number if is_there else None

    def pass_by(self, seconds):
        """Let time pass, in ticks."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            for index in range(len(self.nodes)):
                if index not in self.dead:
                    self.turn(index)

    def turn(self, index):
        members = self.nodes[index]
        if index not in self.no_disk:
            members.kept(members.others)
        members.tick(self.now)
        self.carry(index)
        for name, member in list(members.by_id.items()):
            if not member.is_linked:
                self.connect(index, name, member)
        self.carry(index)

    def connect(self, index, name, member):
        members, to = self.nodes[index], self.at(member.address)
        if (
            to is None
            or not self.reaches(index, to)
            or not self.reaches(to, index)
            or members.linked(name, self.nodes[to].node_id, self.now) is None
        ):
            members.unlinked(name, self.now)

    def carry(self, index):
        """Take what a node says to the others, and their answers back."""
        members = self.nodes[index]
        for name in members.cut:
            members.unlinked(name, self.now)
        members.cut.clear()
        letters, members.letters = members.letters, []
        for name, gossip in letters:
            member = members.by_id.get(name)
            to = None if member is None else self.at(member.address)
            if to is None or not self.reaches(index, to):
                continue
            self.sent += 1
            ends = Ends(self.host(to), self.host(index))
            other = self.nodes[to]
            answer = other.receive(members.node_id, gossip, ends, self.now)
            if answer is not None and self.reaches(to, index):
                back = Ends(self.host(index), self.host(to))
                members.receive(other.node_id, answer, back, self.now)
            self.carry(to)

    # ---- what a test looks at

    def sees(self, index, other):
        """Return how a node sees another one; None: not at all."""
        return self.nodes[index].by_id.get(self.nodes[other].node_id)

    def mesh(self):
        """Whether each node that lives reaches all others."""
        alive = [n for i, n in enumerate(self.nodes) if i not in self.dead]
        return all(len(members.reachable) == len(alive) - 1 for members in alive)


def mesh_of(number, **options):
    """Return nodes that all know each other."""
    network = Network(number, **options)
    for index in range(1, number):
        network.meet(index - 1, index)
    network.pass_by(5)
    assert network.mesh()
    return network
