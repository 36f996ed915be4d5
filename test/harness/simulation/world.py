"""A world of nodes in virtual time: a network that loses, delays, doubles, reorders and
parts, and what clients did and were told. The same seed and steps give the same run."""

from __future__ import annotations

import heapq
from functools import partial
from random import Random

from harness.simulation.host import Host
from harness.simulation.ledger import Ledger

ACKS = "acks"  # a consumer that acknowledges what it takes


class World:
    """Nodes, the network between them, and their clients."""

    def __init__(self, seed, size, *, faulty):
        self.seed = seed
        self.now = 0.0
        self.faulty = faulty
        self.chance = Random(f"{seed}/network")
        self.cut = set()  # pairs of nodes: nothing goes from the one to the other
        self.letters = 0
        self.steps = 0
        self._order = 0
        self._heap = []
        self.clients = {}  # number: what it asked, and of whom
        self._last_client = 0
        self.ledger = Ledger(self)
        self.members = [f"{number:x}" * 40 for number in range(1, size + 1)]
        self.hosts = {}
        for node_id in self.members:
            self.hosts[node_id] = Host(self, node_id)

    # ---- time

    def later(self, seconds, action):
        """Do something after a while."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + seconds, self._order, action))

    def pass_by(self, seconds):
        """Let time pass, and all happen that falls into it."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end:
            at, _, action = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            self.steps += 1
            action()
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
        times = 1
        if self.faulty:
            drawn = self.chance.random()
            times = 0 if drawn < 0.05 else 2 if drawn < 0.10 else 1
        for _ in range(times):
            self.later(self._delay(), lambda: self._arrive(sender, letter))

    def _delay(self):
        drawn = self.chance.random()
        if self.faulty and drawn < 0.03:
            return self.chance.uniform(0.5, 8.0)
        if drawn < 0.1:
            return self.chance.uniform(0.01, 0.2)
        return self.chance.uniform(0.0001, 0.003)

    def _arrive(self, sender, letter):
        if (sender, letter.to) not in self.cut:
            self.hosts[letter.to].hear(sender, letter.message)

    # ---- clients

    def ask(self, node_id, *words, about=None):
        """Let a new client ask a node; return its number."""
        self._last_client += 1
        self.clients[self._last_client] = (node_id, words, about)
        self.hosts[node_id].ask(self._last_client, words)
        return self._last_client

    def answered(self, host, client, value):
        """A client has its answer."""
        asked_of, words, about = self.clients.pop(client, (None, None, None))
        if words is not None and asked_of == host.node_id:
            self.ledger.note(host, words, value, about)
            if about == ACKS:
                for _, job_id, *_ in value if isinstance(value, list) else ():
                    self.later(0.01, partial(self._ack, host.node_id, job_id))

    def _ack(self, node_id, job_id):
        if self.hosts[node_id].is_up:
            self.ask(node_id, "ACKJOB", job_id, about=job_id)

    def gone(self, node_id):
        """A node is down: its clients get no answer."""
        for client, (of, _, _) in list(self.clients.items()):
            if of == node_id:
                self.ledger.unsure.add(self.clients.pop(client)[2])

    def hang_up(self, client):
        """Let a client go away."""
        node_id, _, about = self.clients.pop(client, (None, None, None))
        self.ledger.unsure.add(about)
        if node_id is not None:
            self.hosts[node_id].take(lambda host: host.node.hung_up(client, host.now))
