"""A world of nodes in virtual time: a network that loses, delays, doubles, reorders and
parts, and what clients did and were told. The same seed and steps give the same run."""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

from harness.simulation.host import Host
from harness.simulation.ledger import Broken, Ledger
from harness.simulation.links import Links

ACKS = "acks"  # a consumer that acknowledges what it takes
STAYS = "stays"  # one that also asks again, as long as it is answered


class World:
    """Nodes, the network between them, and their clients."""

    def __init__(self, seed, size, *, faulty):
        self.seed = seed
        self.now = 0.0
        self.faulty = faulty
        self.chance = Random(f"{seed}/network")
        # Letters come in their order, and are lost only with a link, as over TCP.
        self.orderly = self.chance.random() < 0.4
        self.links = Links(self)
        self.cut = set()  # pairs of nodes: nothing goes from the one to the other
        self.letters = 0
        self.steps = 0
        self.tally = Counter()  # what was done, by its name
        self._order = 0
        self._heap = []
        self.clients = {}  # number: what it asked, and of whom
        self._last_client = 0
        self.ledger = Ledger(self)
        self.members = [f"{number:x}" * 40 for number in range(1, size + 1)]
        self.hosts = {node_id: Host(self, node_id) for node_id in self.members}
        self.all_meet()
        for host in self.hosts.values():
            host.start()
        self.links.see()

    def all_meet(self):
        """Let all nodes know each other, and nobody else."""
        for node_id in self.members:
            self.hosts[node_id].members.know(self.members)

    def figures(self):
        """Return how much of what has happened, by its name."""
        return self.tally + Counter(
            {
                "steps of nodes": self.steps,
                "letters": self.letters,
                "deliveries": sum(self.ledger.delivered.values()),
                "acknowledged jobs": len(self.ledger.acked),
                "runs with trouble": int(self.faulty),
            }
        )

    # ---- time

    def later(self, seconds, action, *args):
        """Do something after a while."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + seconds, self._order, action, args))

    def pass_by(self, seconds):
        """Let time pass, and all happen that falls into it."""
        end, heap, pop = self.now + seconds, self._heap, heapq.heappop
        while heap and heap[0][0] <= end:
            at, _, action, args = pop(heap)
            if at > self.now:
                self.now = at
            self.steps += 1
            action(*args)
        self.now = end

    def disk_takes(self):
        """Return how long a sync takes."""
        if self.faulty and self.chance.random() < 0.02:
            return self.chance.uniform(0.1, 0.7)
        return self.chance.uniform(0.0005, 0.005)

    # ---- the network

    def carry(self, sender, letter):
        """Take a letter to where it goes, if it does."""
        self.letters += 1
        if letter.to not in self.hosts:
            return
        if self.orderly:
            self.links.carry(sender, letter)
            return
        if self.faulty:
            drawn = self.chance.random()
            if drawn < 0.05:
                return
            if drawn < 0.10:
                self.later(self.delay(), self._arrive, sender, letter)
        self.later(self.delay(), self._arrive, sender, letter)

    def delay(self):
        drawn = self.chance.random()
        if drawn >= 0.1:
            return 0.0001 + 0.0029 * self.chance.random()
        if self.faulty and drawn < 0.03:
            return self.chance.uniform(0.5, 8.0)
        return self.chance.uniform(0.01, 0.2)

    def _arrive(self, sender, letter):
        host = self.hosts.get(letter.to)
        if host is not None and (sender, letter.to) not in self.cut:
            host.hear(sender, letter.message)

    # ---- clients

    def ask(self, node_id, *words, about=None):
        """Let a new client ask a node; return its number."""
        self._last_client += 1
        self.clients[self._last_client] = (node_id, words, about)
        self.tally[words[0]] += 1
        self.hosts[node_id].ask(self._last_client, encoded(words))
        return self._last_client

    def answered(self, host, client, value):
        """A client has its answer."""
        asked = self.clients.pop(client, None)
        if asked is None or asked[0] != host.node_id:
            return
        _, words, about = asked
        self.ledger.note(host, client, value, asked)
        if about in (ACKS, STAYS) and isinstance(value, list):
            for _, job_id, *_ in value:
                self.later(0.01, self._ack, host.node_id, job_id)
        if about == STAYS:
            self.later(0.01, self._stay, host.node_id, words)

    def _ack(self, node_id, job_id):
        host = self.hosts.get(node_id)
        if host is not None and host.is_up:
            self.ask(node_id, "ACKJOB", job_id, about=job_id)

    def _stay(self, node_id, words):
        if not self.ledger.is_drained:
            self.ask(node_id, *words, about=STAYS)

    def gone(self, node_id):
        """A node is down: its clients get no answer."""
        for client, (of, _, _) in list(self.clients.items()):
            if of == node_id:
                self.ledger.unsure.add(self.clients.pop(client)[2])

    def taken_for_old(self, host):
        """Others know of more than a node has on its disk."""
        self.tally["old disks"] += 1
        if not host.is_restored:
            raise Broken(f"{host.node_id[:4]} has its disk, and others hold it for old")

    def rename(self, host):
        """Let a node have another id; who does not meet it does not know it."""
        before, after = host.node_id, f"{len(self.hosts):x}0" * 20
        self.hosts[after] = self.hosts.pop(before)
        self.members[self.members.index(before)] = after
        host.node_id = after
        host.take(host.node.rename, after, host.now)
        for client, (of, words, about) in self.clients.items():
            if of == before:
                self.clients[client] = (after, words, about)

    def hang_up(self, client):
        """Let a client go away."""
        node_id, _, about = self.clients.pop(client, (None, None, None))
        self.ledger.unsure.add(about)
        host = self.hosts.get(node_id)
        if host is not None:
            host.take(lambda: host.node.hung_up(client, host.now))


_ENCODED = {}  # of commands that are the same each time


def encoded(words):
    """Return the words of a command as bytes."""
    known = _ENCODED.get(words)
    if known is None:
        known = tuple(str(word).encode() for word in words)
        if words[0] == "GETJOB":
            _ENCODED[words] = known
    return known
