"""Links between the nodes of the simulated world: which stand, since when, and who is taken
for away by whom."""

from __future__ import annotations

SUSPECTS = 3.0  # seconds without a link until a node is suspected


class Links:
    """Of each pair of nodes that know each other."""

    def __init__(self, world):
        self._world = world
        self.since = {}  # of pairs whose link stands
        self.apart = {}  # of others: since when
        self.doubted = set()  # pairs: the first suspects the second
        self.back = {}  # by pair: when the first heard of the second after that
        self._last = {}  # by pair: when the last letter arrives

    def see(self):
        """See which links stand now, and let nodes know of it."""
        world, now = self._world, self._world.now
        pairs = [
            (host, other)
            for host in world.hosts.values()
            for other in host.members.others
            if other in world.hosts
        ]
        stand = {(a.node_id, b): a for a, b in pairs if self._stands(a, b)}
        for pair in [pair for pair in self.since if pair not in stand]:
            del self.since[pair]
            self._parted(pair)
        made = [pair for pair in stand if pair not in self.since]
        for pair in made:
            self.since[pair] = now
            self.apart.pop(pair, None)
        for near, far in made:
            if (near, far) in self.doubted:
                self.doubted.discard((near, far))
                self.back[near, far] = now
            self._last.pop((near, far), None)
            self._tell(near, far)
        for host, other in pairs:
            pair = host.node_id, other
            if pair not in stand and pair not in self.apart:
                self._parted(pair)

    def _stands(self, host, other):
        world = self._world
        there, pair = world.hosts[other], (host.node_id, other)
        is_cut = pair in world.cut or pair[::-1] in world.cut
        knows = host.node_id in there.members.others
        return host.is_up and there.is_up and knows and not is_cut

    def _tell(self, near, far):
        """A link stands: the far end hears of the near one, which tells what it knows."""
        hosts = self._world.hosts
        hosts[far].take(self._linked_from, hosts[far], near)
        hosts[near].take(self._linked, hosts[near], far)

    @staticmethod
    def _linked_from(host, near):
        host.node.desk.holding.linked(near, host.now)

    @staticmethod
    def _linked(host, far):
        host.node.replication.linked(far, host.now)

    def _parted(self, pair):
        self.apart[pair] = self._world.now
        self._world.later(SUSPECTS, self._suspect, pair, self._world.now)

    def _suspect(self, pair, since):
        host = self._world.hosts.get(pair[0])
        if self.apart.get(pair) == since:
            self.doubted.add(pair)
            if host is not None and host.is_up:
                host.node.desk.holding.silent(pair[1])

    # ---- letters in their order

    def carry(self, sender, letter):
        """Take a letter over a link, behind those before it."""
        pair = sender, letter.to
        since = self.since.get(pair)
        if since is None:
            return
        at = max(self._world.now + self._world.delay() % 0.2, self._last.get(pair, 0.0))
        self._last[pair] = at
        wait = at - self._world.now
        self._world.later(wait, self._arrive, sender, letter, since)

    def _arrive(self, sender, letter, since):
        host = self._world.hosts.get(letter.to)
        if host is not None and self.since.get((sender, letter.to)) == since:
            host.hear(sender, letter.message)
