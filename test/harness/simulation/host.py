"""A node of the simulated world: with a disk that keeps what was synced, and clocks that
are its own."""

from __future__ import annotations

from random import Random

import orjson

from rq.broker import job, lines
from rq.broker.dialects.call import Blocked, Call, Refusal
from rq.broker.dialects.table import TABLE
from rq.broker.node import Node


class Members:
    """The other nodes, as this one sees them."""

    def __init__(self, world, host):
        self._world = world
        self._host = host

    @property
    def others(self):
        return tuple(
            node_id for node_id in self._world.members if node_id != self._host.node_id
        )

    @property
    def reachable(self):
        world, own = self._world, self._host.node_id
        return tuple(
            node_id
            for node_id in self.others
            if world.hosts[node_id].is_up
            and (own, node_id) not in world.cut
            and not world.hosts[node_id].node.jobs.leaving
        )

    @property
    def size(self):
        return len(self._world.members)


class Host:
    """One node: up or not, with what its disk holds."""

    def __init__(self, world, node_id):
        self.world = world
        self.node_id = node_id
        self.is_up = False
        self.starts = 0
        self.ahead = 1000.0  # its clock, ahead of the world's
        self.wall_off = 0.0  # seconds by which the time of day is wrong
        self.synced = []  # lines on the disk
        self.written = []  # lines that a power cut may lose
        self.on_disk = set()  # ids of the jobs that synced lines tell of
        self.free_at = 0.0  # until then it waits for its disk
        self.inbox = []
        self.held = None  # answers and letters that wait for the disk
        self.tick_at = None
        self.start()

    @property
    def now(self):
        return self.world.now + self.ahead

    @property
    def wall_ms(self):
        return int((1_700_000_000 + self.world.now + self.wall_off) * 1000)

    # ---- life

    def start(self):
        """Begin with what the disk holds."""
        self.starts += 1
        self.node = Node(
            self.node_id, Random(f"{self.world.seed}/{self.node_id}/{self.starts}")
        )
        self.node.peers = Members(self.world, self)
        for at, text in self.synced:
            self.node.apply(lines.event(orjson.loads(text)), at)
        self.is_up = True
        self.inbox, self.held = [], None
        self.free_at = self.world.now
        self.node.begin(self.now)
        self.turn()

    def kill(self, *, power, share):
        """End at once; a power cut loses a share of what was not synced."""
        if not self.is_up:
            return
        self.is_up = False
        left = self.written
        if power:
            left = left[: int(len(left) * share)]
        self._sync(left)
        self.written, self.held, self.inbox = [], None, []
        self.world.gone(self.node_id)

    def lose_disk(self):
        """Keep nothing, and never come back."""
        self.kill(power=True, share=0.0)
        self.synced, self.on_disk = [], set()

    def _sync(self, events):
        for at, event in events:
            self.synced.append((at, orjson.dumps(lines.record(event))))
            if isinstance(event, job.Added):
                self.on_disk.add(event.job)
            elif isinstance(event, job.Removed):
                self.on_disk.difference_update(event.jobs)

    # ---- turns

    def take(self, what):
        """Do something now, or when the disk has answered."""
        if not self.is_up:
            return
        if self.world.now < self.free_at:
            self.inbox.append(what)
            return
        what(self)
        self.turn()

    def turn(self):
        """Let time pass, then write, and send what may leave."""
        node = self.node
        node.tick(self.now)
        events, node.events = node.events, []
        self.written += [(self.now, event) for event in events]
        answers, node.answers = node.answers, []
        letters, node.letters = node.letters, []
        self.held = answers, letters
        if node.must_sync:
            node.must_sync = False
            took = self.world.disk_takes()
            self.free_at = self.world.now + took
            starts = self.starts
            self.world.later(took, lambda: self._synced(starts))
        else:
            self._leave()

    def _synced(self, starts):
        if not self.is_up or starts != self.starts:
            return
        written, self.written = self.written, []
        self._sync(written)
        self._leave()
        inbox, self.inbox = self.inbox, []
        for number, what in enumerate(inbox):
            if self.world.now < self.free_at or not self.is_up:
                self.inbox += inbox[number:]
                return
            what(self)
            self.turn()

    def _leave(self):
        (answers, letters), self.held = self.held, ((), ())
        for client, value in answers:
            self.world.answered(self, client, value)
        for letter in letters:
            self.world.carry(self.node_id, letter)
        self._set_timer()

    def _set_timer(self):
        at = self.node.next_tick()
        if at is None:
            self.tick_at = None
            return
        at = max(at - self.ahead, self.world.now + 0.001)
        if self.tick_at is not None and self.world.now < self.tick_at <= at:
            return
        self.tick_at, starts = at, self.starts
        self.world.later(at - self.world.now, lambda: self._tick(starts, at))

    def _tick(self, starts, at):
        if self.is_up and starts == self.starts and self.tick_at == at:
            self.tick_at = None
            self.take(lambda host: None)

    # ---- clients

    def ask(self, client, words):
        """Take a command of a client; its answer leaves when it may."""

        def obey(host):
            name, *args = [
                w if isinstance(w, bytes) else str(w).encode() for w in words
            ]
            call = Call(host.node, client, args, host.now, host.wall_ms)
            try:
                value = TABLE[name].function(call)
            except Refusal as refusal:
                value = refusal.failure
            if not isinstance(value, Blocked):
                host.node.answers.insert(0, (client, value))

        self.take(obey)

    def hear(self, sender, message):
        """Take a message of another node."""
        self.take(
            lambda host: host.node.receive(sender, message, host.now, host.wall_ms)
        )
