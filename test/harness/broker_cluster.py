"""Nodes of a broker in one process: a test moves their clock and carries their letters."""

from __future__ import annotations

from random import Random

import orjson

from rq.broker.desks.node import Node
from rq.broker.dialects import TABLE
from rq.broker.dialects.call import Blocked, Call, Refusal
from rq.broker.state import lines
from rq.resp import Status

WALL = 1_700_000_000_000


class Members:
    """The other nodes of a cluster, as one of them sees them."""

    def __init__(self, cluster, node_id):
        self._cluster = cluster
        self._node_id = node_id

    @property
    def others(self):
        return tuple(each for each in self._cluster.ids if each != self._node_id)

    @property
    def reachable(self):
        return tuple(each for each in self.others if each not in self._cluster.dead)

    @property
    def counted(self):
        away = self._cluster.dead - self._cluster.unsuspected
        return tuple(each for each in self.others if each not in away)

    def has_room(self, node_id):
        return True

    def takes_marks(self, node_id):
        return node_id not in self._cluster.old

    def is_member(self, node_id):
        return node_id in self.others

    @property
    def size(self):
        return len(self._cluster.ids)


class Cluster:
    """Nodes A, B, C …, and the letters between them."""

    def __init__(self, size):
        self.ids = [f"{number:x}" * 40 for number in range(10, 10 + size)]
        self.dead = set()
        self.unsuspected = set()  # of the dead
        self.old = set()  # nodes of the version before
        self.now = 1000.0
        self.answers = {}  # of node and client
        self.lost = []  # letters that did not arrive
        self.carried = []  # sender and letter, of those that did
        self.disks = {node_id: [] for node_id in self.ids}
        self.nodes = [self._node(node_id) for node_id in self.ids]

    def _node(self, node_id):
        node = Node(node_id, Random(node_id))
        node.peers = Members(self, node_id)
        return node

    def restart(self, number):
        """Let a node begin again with what its lines tell."""
        node = self.nodes[number] = self._node(self.ids[number])
        for now, text in self.disks[node.node_id]:
            node.apply(lines.event(orjson.loads(text)), now)
        self.dead.discard(node.node_id)
        node.begin(self.now)
        node.hold_once(self.now)
        self.carry()
        self.link(number)

    def link(self, number):
        """Let the links of a node to all others, and back, stand again."""
        for other in self._live():
            if other is not self.nodes[number]:
                self._linked(self.nodes[number], other)
                self._linked(other, self.nodes[number])
        self.carry()

    def _linked(self, node, to):
        to.desk.holding.linked(node.node_id, self.now)
        node.replication.linked(to.node_id, self.now)

    def rename(self, number, node_id):
        """Let a node go on under another id."""
        node = self.nodes[number]
        self.disks[node_id] = self.disks.pop(node.node_id)
        self.ids[number] = node_id
        node.peers = Members(self, node_id)
        node.rename(node_id, self.now)

    def kill(self, number):
        """Let a node be gone, and all that it has not sent."""
        self.dead.add(self.ids[number])

    def ask(self, number, *words, client=1):
        """Ask a node, and carry what follows; return its answer."""
        name, *args = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        wall = WALL + int(self.now * 1000)
        call = Call(self.nodes[number], client, args, self.now, wall)
        try:
            value = TABLE[name].function(call)
        except Refusal as refusal:
            value = refusal.failure
        self.carry()
        if isinstance(value, Blocked):
            return self.answers.pop((self.ids[number], client), None)
        return value

    def add(self, number, *options, queue="q", client=1):
        """Add a job, and return its id."""
        value = self.ask(number, "ADDJOB", queue, "body", 0, *options, client=client)
        assert isinstance(value, Status), value
        return value.text

    def pass_by(self, seconds, step=0.05):
        """Let time pass, in steps."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            for node in self._live():
                node.tick(self.now)
            self.carry()

    def _live(self):
        return [node for node in self.nodes if node.node_id not in self.dead]

    def carry(self):
        """Make all durable, and let letters arrive until there are none."""
        while letters := [each for node in self._live() for each in self._take(node)]:
            for sender, letter in letters:
                if {sender, letter.to} & self.dead or letter.to not in self.ids:
                    self.lost.append(letter)
                    continue
                self.carried.append((sender, letter))
                node = self.nodes[self.ids.index(letter.to)]
                node.receive(sender, letter.message, self.now)

    def _take(self, node):
        node.tick(self.now)
        events, node.events = node.events, []
        disk = self.disks[node.node_id]
        disk += [(self.now, orjson.dumps(lines.record(each))) for each in events]
        answers, node.answers = node.answers, []
        for client, value in answers:
            self.answers[node.node_id, client] = value
        letters, node.letters = node.letters, []
        return [(node.node_id, letter) for letter in letters]

    def holders(self, job_id):
        """Return which nodes have a job, by number."""
        return [
            number
            for number, node in enumerate(self.nodes)
            if job_id in node.jobs.by_id
        ]

    def get(self, number, queue="q"):
        """Return the id of the job that a node hands out; None: it has none."""
        value = self.ask(number, "GETJOB", "NOHANG", "FROM", queue)
        return value[0][1] if isinstance(value, list) else None
