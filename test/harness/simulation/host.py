"""A node of the simulated world: with a disk that keeps what was synced, and clocks that
are its own."""

from __future__ import annotations

from itertools import chain
from random import Random

import orjson

from rq.broker.cluster.messages import Need, Replicate, Yours
from rq.broker.desks.node import Node
from rq.broker.dialects import TABLE
from rq.broker.dialects.call import Blocked, Call, Refusal
from rq.broker.state import job, lines
from rq.resp import Failure

_NEWS = Replicate, Yours, Need  # what a node does not take while its disk fails
_GREETINGS = 0.2, 0.7, 1.2, 1.7  # seconds after a start
_FAILING = Failure("MISCONF Errors writing to the AOF file")


class Members:
    """The other nodes, as this one sees them."""

    def __init__(self, world, host):
        self._world = world
        self._host = host
        self.others = ()

    def know(self, node_ids):
        """Let these be the others."""
        own = self._host.node_id
        self.others = tuple(sorted(each for each in node_ids if each != own))

    @property
    def reachable(self):
        links, own = self._world.links, self._host.node_id
        return tuple(each for each in self.counted if (own, each) in links.since)

    @property
    def counted(self):
        return tuple(node_id for node_id in self.others if self._is_fit(node_id))

    def _is_fit(self, node_id):
        host, links = self._world.hosts.get(node_id), self._world.links
        is_doubted = (self._host.node_id, node_id) in links.doubted
        is_leaving = host and host.is_up and host.node.jobs.leaving
        return host and not is_doubted and not is_leaving

    def has_room(self, node_id):
        return True

    def takes_marks(self, node_id):
        return True

    def is_member(self, node_id):
        return node_id in self.others

    @property
    def size(self):
        return 1 + len(self.others)


class Host:
    """One node: up or not, with what its disk holds."""

    def __init__(self, world, node_id):
        self.world = world
        self.node_id = node_id
        self.members = Members(world, self)
        self.is_up = False
        self.starts = 0
        self.ahead = 1000.0  # its clock, ahead of the world's
        self.wall_off = 0.0  # seconds by which the time of day is wrong
        self.synced = []  # on the disk, as lines when they are read
        self.ends = []  # how many they were after each sync
        self.written = []  # lines that a power cut may lose, those of a turn together
        self.on_disk = set()  # ids of the jobs that synced lines tell of
        self.free_at = 0.0  # until then it waits for its disk
        self.fails_until = 0.0  # until then its disk takes nothing
        self.inbox = []
        self.answers, self.letters = [], []  # that wait for the disk
        self.tick_at = None
        self.heard = {}  # of each other node: the most lines that it said to have
        self.is_restored = False  # the disk is an older copy
        self.outdated = False  # and others have said so

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
        self.node.peers = self.members
        for at, event in self.synced:
            line = orjson.dumps(lines.record(event))
            self.node.apply(lines.event(orjson.loads(line)), at)
        self.is_up, self.up_since = True, self.world.now
        self.inbox, self.answers, self.letters = [], [], []
        self.heard, self.outdated = {}, False
        self.free_at = self.fails_until = self.world.now
        self.tick_at = None
        self.node.begin(self.now)
        if self.members.size > 1:
            self.node.hold_once(self.now)
        self.world.links.see()
        for tried, after in enumerate(_GREETINGS, 1):
            is_last = tried == len(_GREETINGS)
            self.world.later(after, self._greet, self.starts, is_last)
        self.turn()

    def kill(self, *, power, share):
        """End at once; a power cut loses a share of what was not synced. A journal keeps
        the lines of a turn as one group, whole or not at all."""
        if not self.is_up:
            return
        for peer in self._linked():
            peer.heard[self.node_id] = len(self.synced)
        self.is_up = False
        left = self.written
        if power:
            left = left[: round(len(left) * share)]
        self._sync(chain.from_iterable(left))
        self.written, self.inbox = [], []
        self.world.gone(self.node_id)
        self.world.links.see()

    def lose_disk(self):
        """Keep nothing, and never come back."""
        self.kill(power=True, share=0.0)
        self.synced, self.on_disk = [], set()

    # ---- a disk that is an older copy

    def restore(self, share):
        """Let the disk be as it was when it had less."""
        copy, self.synced, self.on_disk = self.synced, [], set()
        self.ends = self.ends[: int(len(self.ends) * share)]
        self._sync(copy[: self.ends[-1] if self.ends else 0])
        self.is_restored = len(self.synced) < len(copy)

    def _linked(self):
        """Return the others to whom a greeting of this one comes, and back."""
        world, own = self.world, self.node_id
        peers = [world.hosts.get(each) for each in self.members.others]
        return [
            peer
            for peer in peers
            if peer
            and peer.is_up
            and own in peer.members.others
            and not {(own, peer.node_id), (peer.node_id, own)} & world.cut
        ]

    def _greet(self, starts, is_last):
        """Hear what the others remember of this node, after a start."""
        if not self.is_up or starts != self.starts or self.outdated:
            return
        remembered = [peer.heard.get(self.node_id, 0) for peer in self._linked()]
        if any(lines > len(self.synced) for lines in remembered):
            self.world.taken_for_old(self)
            self.outdated = True
            self.take(self.node.disown, self.now)
        elif self.is_restored and is_last:
            self.world.tally["old disks that nobody knew"] += 1
            self.world.ledger.is_old = True

    def _be_another(self):
        """What was to come at most once does not come, durably: take another id."""
        self.outdated = self.is_restored = False
        peers = self._linked()
        self.world.rename(self)
        for peer in peers:
            peer.members.know({*peer.members.others, self.node_id})

    def _sync(self, events):
        for at, event in events:
            self.synced.append((at, event))
            kind = type(event)
            if kind is job.Added:
                self.on_disk.add(event.job)
            elif kind is job.Removed:
                self.on_disk.difference_update(event.jobs)
            elif kind is job.Flushed:
                self.on_disk.clear()

    # ---- turns

    def take(self, what, *args):
        """Do something now, or when the disk has answered."""
        if not self.is_up:
            return
        if self.world.now < self.free_at:
            self.inbox.append((what, args))
            return
        what(*args)
        self.turn()

    def turn(self):
        """Let time pass, then write, and send what may leave."""
        node, now = self.node, self.world.now + self.ahead
        node.tick(now)
        node.handed.clear()  # clients have all that is sent to them
        if node.events:
            self.written.append([(now, event) for event in node.events])
            node.events = []
        if node.answers:
            self.answers += node.answers
            node.answers = []
        if node.letters:
            self._leave_early()
        if not node.must_sync:
            if self.outdated:  # there was nothing to disown
                self._be_another()
            self._leave()
        elif self.fails_until <= self.world.now:
            node.must_sync = False
            took = self.world.disk_takes()
            self.free_at = self.world.now + took
            self.world.later(took, self._synced, self.starts)
        else:
            self._set_timer()

    def fail(self, seconds):
        """Let the disk take nothing for a while; what needs no sync goes on."""
        if self.is_up:
            self.fails_until = self.world.now + seconds
            self.world.later(seconds, self._works_again, self.starts)

    @property
    def is_failing(self):
        return self.world.now < self.fails_until

    def _works_again(self, starts):
        if starts == self.starts:
            self.take(_nothing)

    def _synced(self, starts):
        if not self.is_up or starts != self.starts:
            return
        written, self.written = self.written, []
        self._sync(chain.from_iterable(written))
        self.ends.append(len(self.synced))
        if self.outdated:
            self._be_another()
        self._leave()
        inbox, self.inbox = self.inbox, []
        for number, (what, args) in enumerate(inbox):
            if self.world.now < self.free_at or not self.is_up:
                self.inbox += inbox[number:]
                return
            what(*args)
            self.turn()

    def _leave_early(self):
        """Send what need not wait for the disk."""
        node = self.node
        early = [letter for letter in node.letters if letter.is_early]
        if early:
            node.letters = [each for each in node.letters if not each.is_early]
        for letter in early:
            self.world.carry(self.node_id, letter)

    def _leave(self):
        """Send what waits; all that it says is durable, or needs not be."""
        node, world = self.node, self.world
        if self.answers:
            answers, self.answers = self.answers, []
            for client, value in answers:
                world.answered(self, client, value)
        if node.letters:
            letters, node.letters = node.letters, []
            for letter in letters:
                world.carry(self.node_id, letter)
        self._set_timer()

    def _set_timer(self):
        at = self.node.next_tick()
        if at is None:
            self.tick_at = None
            return
        now, before = self.world.now, self.tick_at
        at -= self.ahead
        if before is not None and now < before <= at:
            return
        at = max(at, now + 0.001)
        self.tick_at = at
        self.world.later(at - now, self._tick, self.starts, at)

    def _tick(self, starts, at):
        if self.is_up and starts == self.starts and self.tick_at == at:
            self.tick_at = None
            self.take(_nothing)

    # ---- clients

    def ask(self, client, words):
        """Take a command of a client; its answer leaves when it may."""
        self.take(self._obey, client, words)

    def _obey(self, client, words):
        name, *args = words
        command = TABLE[name]
        if self.node.cannot_keep() is not None:
            self.world.ledger.without.add(client)
        if command.grows and self.is_failing:
            self.answers.append((client, _FAILING))
            return
        try:
            value = command.function(
                Call(self.node, client, args, self.now, self.wall_ms)
            )
        except Refusal as refusal:
            value = refusal.failure
        if not isinstance(value, Blocked):
            self.answers.append((client, value))

    def hear(self, sender, message):
        """Take a message of another node, now or when the disk has answered."""
        if self.is_up and self.world.now >= self.free_at:
            self._receive(sender, message)
            self.turn()
        else:
            self.take(self._receive, sender, message)

    def _receive(self, sender, message):
        if not (self.is_failing and isinstance(message, _NEWS)):
            self.node.receive(sender, message, self.now)


def _nothing():
    """Only a turn is wanted."""
