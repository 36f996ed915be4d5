"""A run of the simulated world, from a seed or from steps, and its shrinking."""

from __future__ import annotations

from random import Random

from harness.simulation.ledger import Broken
from harness.simulation.steps import QUEUES, plan
from harness.simulation.world import ACKS, World

_PLENTY = 1 << 30
_DRAIN = 60  # seconds in which consumers everywhere take what there is
_LETTERS = 200  # a job and node at most; it took 48
_COLLECT = 600.0  # seconds in which acknowledged jobs go


class Run:
    """Steps that are taken in a world."""

    def __init__(self, seed, size, *, faulty, steps):
        self.world = World(seed, size, faulty=faulty)
        self._ledger = self.world.ledger
        self._steps = steps

    def play(self):
        """Take all steps, then let all be well, and see whether promises hold. Broken:
        one does not."""
        for wait, kind, *args in self._steps:
            getattr(self, f"_{kind}")(*args)
            self.world.pass_by(wait)
        self._end_trouble()
        self._drain()
        self._collect()
        return self.world

    def _host(self, number):
        return self.world.hosts[self.world.members[number % len(self.world.members)]]

    def _job(self, number):
        """Return a job of the last ones that were handed out, and where."""
        at_hand = self._ledger.at_hand[-64:]
        return at_hand[number % len(at_hand)] if at_hand else (None, None)

    # ---- work

    def _add(self, number, words):
        self.world.ask(self._host(number).node_id, *words)

    def _get(self, number, words):
        self.world.ask(self._host(number).node_id, *words)

    def _consume(self, number):
        """Take jobs, and acknowledge them at once where they were taken."""
        words = ("GETJOB", "NOHANG", "COUNT", 10, "FROM", *QUEUES)
        self.world.ask(self._host(number).node_id, *words, about=ACKS)

    def _ack(self, number, elsewhere):
        job_id, node_id = self._job(number)
        if job_id is None:
            return
        if elsewhere >= 0:
            node_id = self._host(elsewhere).node_id
        self.world.ask(node_id, "ACKJOB", job_id, about=job_id)

    def _touch(self, verb, number, elsewhere):
        job_id, _ = self._job(number)
        if job_id is not None:
            self._ledger.disturb(job_id)
            self.world.ask(self._host(elsewhere).node_id, verb, job_id)

    def _delete(self, verb, number, elsewhere):
        job_id, _ = self._job(number)
        if job_id is not None:
            self._ledger.release(job_id)
            self.world.ask(self._host(elsewhere).node_id, verb, job_id)

    def _hang_up(self, number):
        clients = sorted(self.world.clients)
        if clients:
            self.world.hang_up(clients[-1 - number % len(clients)])

    def _pause(self, number, queue, how):
        self.world.ask(self._host(number).node_id, "PAUSE", queue, how)

    # ---- trouble

    def _kill(self, number, power, share):
        self._host(number).kill(power=power, share=share)

    def _restart(self, number, asleep):
        host = self._host(number)
        if not host.is_up and host.node_id not in self._ledger.lost_disks:
            host.ahead += asleep
            host.start()

    def _part(self, one_end, other_end, one_way):
        first, second = self._host(one_end).node_id, self._host(other_end).node_id
        self.world.cut.add((first, second))
        if not one_way:
            self.world.cut.add((second, first))

    def _heal(self):
        self.world.cut.clear()

    def _wall(self, number, seconds):
        self._host(number).wall_off += seconds

    def _memory(self, number, short):
        self._host(number).node.memory.limit = 0 if short else _PLENTY

    def _leave(self, number, leaving):
        self._host(number).take(lambda host: host.node.desk.leave(leaving, host.now))

    def _lose_disk(self, number):
        """Let one node be gone for good, and forgotten."""
        host = self._host(number)
        if not self._ledger.lost_disks and len(self.world.members) > 2:
            host.lose_disk()
            self._ledger.lost_disks.add(host.node_id)
            self.world.members.remove(host.node_id)

    # ---- the end

    def _end_trouble(self):
        world = self.world
        world.cut.clear()
        for host in self._hosts():
            if not host.is_up:
                host.start()
            host.node.memory.limit = _PLENTY
            host.take(lambda each: each.node.desk.leave(False, each.now))
            for queue in QUEUES:
                world.ask(host.node_id, "PAUSE", queue, "none")

    def _hosts(self):
        return [self.world.hosts[node_id] for node_id in self.world.members]

    def _drain(self):
        numbers = range(len(self.world.members))
        seconds = _DRAIN
        if Random(f"{self.world.seed}/drain").random() < 0.5:
            numbers, seconds = range(1), 2 * _DRAIN  # jobs have to come to it
        for _ in range(seconds):
            for number in numbers:
                self._consume(number)
            self.world.pass_by(1.0)
        owed = self._ledger.owed()
        if owed:
            raise Broken(f"lost: {owed}")

    def _collect(self):
        self.world.pass_by(_COLLECT)
        # Of one that comes at most once, copies that nobody will queue may lie about.
        gone = {each for each in self._ledger.acked if int(each[-4:], 16) % 2}
        for host in self._hosts():
            left = gone & set(host.node.jobs.by_id)
            if left:
                raise Broken(f"{host.node_id[:4]} still has {sorted(left)}")
            check_node(host.node)
            left = set(host.node.jobs.spreads.bare)
            if left:
                raise Broken(f"{host.node_id[:4]} still has acknowledgements: {left}")
        self._see_silence()

    def _see_silence(self):
        """Nothing is to be said about jobs that are gone, nor are they handed out."""
        self._ledger.is_over = True
        before = self.world.letters
        self.world.pass_by(200.0)
        if self.world.letters != before:
            raise Broken(f"{self.world.letters - before} letters about nothing")
        self._consume(0)
        self.world.pass_by(1.0)
        jobs = 10 + len(self._ledger.delivered)
        if self.world.letters > _LETTERS * jobs * len(self.world.hosts):
            raise Broken(f"{self.world.letters} letters, which is too many")


def check_node(node):
    """Broken: what a node holds does not fit together."""
    jobs = node.jobs
    queued = sorted(
        each.job_id for queue in jobs.queues.values() for each in queue.jobs
    )
    if queued != sorted(
        each.job_id for each in jobs.by_id.values() if each.state == "queued"
    ):
        raise Broken("a queue and the states of its jobs differ")
    bare = set(jobs.spreads.by_job) - set(jobs.by_id) - set(jobs.spreads.bare)
    if bare:
        raise Broken(f"copies of jobs that are gone: {bare}")


def run(seed):
    """Play the run of a seed. Broken: a promise does not hold; the text has the steps
    that are left after shrinking."""
    size, faulty, steps = plan(seed)
    try:
        return Run(seed, size, faulty=faulty, steps=steps).play()
    except Broken as broken:
        less, why = shrunk(seed, size, faulty, steps, broken)
        text = "\n".join(map(repr, less))
        raise Broken(f"seed {seed}, {size} nodes, {faulty=}: {why}\n{text}") from None


def shrunk(seed, size, faulty, steps, broken):
    """Return fewer steps that still break a promise, and which."""
    width = max(1, len(steps) // 2)
    while width:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + width :]
            try:
                Run(seed, size, faulty=faulty, steps=fewer).play()
                at += width
            except Broken as still:
                steps, broken = fewer, still
        width //= 2
    return steps, broken
