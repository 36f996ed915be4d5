"""A run of the simulated world, from a seed or from steps, and its shrinking."""

from __future__ import annotations

from random import Random

from harness.simulation.ledger import Broken
from harness.simulation.steps import QUEUES, plan
from harness.simulation.world import ACKS, STAYS, World
from rq.broker.desks.returning import LONGEST
from rq.broker.state.job import State

_PLENTY = 1 << 30
_DRAIN = 60  # seconds in which consumers everywhere take what there is, at most
_LATE = 9.0  # seconds in which the latest letters come
_DAYS = 2 * 86_400.0  # seconds after which nothing may be left of any job
_LETTERS = 200  # a job and node at most; it took 48
_EACH_SECOND = 2  # letters of each node to each other, of a job that some have deleted
_COLLECT = 600.0  # seconds in which acknowledged jobs go


_POLL = ("GETJOB", "NOHANG", "COUNT", 10, "FROM", *QUEUES)
_WAIT = ("GETJOB", "TIMEOUT", 20_000, "COUNT", 10, "FROM", *QUEUES)


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
            self.world.links.see()
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
        self.world.ask(self._host(number).node_id, *_POLL, about=ACKS)

    def _ack(self, number, elsewhere):
        job_id, node_id = self._job(number)
        if job_id is None:
            return
        if elsewhere >= 0 or node_id not in self.world.hosts:
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

    def _pause(self, number, queue, *how):
        self.world.ask(self._host(number).node_id, "PAUSE", queue, *how)

    def _look(self, number, words):
        job_id, _ = self._job(number)
        if words == ("SHOW",):
            words = ("SHOW", job_id) if job_id else ("JSCAN",)
        self.world.ask(self._host(number).node_id, *words)

    # ---- trouble

    def _kill(self, number, power, share):
        self._note("kills")
        self._host(number).kill(power=power, share=share)

    def _restart(self, number, asleep):
        host = self._host(number)
        if not host.is_up:
            self._note("restarts")
            host.ahead += asleep
            host.start()

    def _part(self, one_end, other_end, one_way):
        self._note("partitions")
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
        self._note("leaving")
        host = self._host(number)
        host.take(lambda: host.node.desk.leave(leaving, host.now))

    def _fail(self, number, seconds):
        self._note("failing disks")
        self._host(number).fail(seconds)

    def _forget(self, number, other):
        """Let one node not know another one, until they meet again."""
        members, other = self._host(number).members, self._host(other)
        if other.node_id in members.others:
            self._note("forgotten")
            members.know(set(members.others) - {other.node_id})

    def _meet(self, number, other):
        for one, of in ((number, other), (other, number)):
            members = self._host(one).members
            members.know({*members.others, self._host(of).node_id})

    def _lose_disk(self, number, forgotten):
        """Let one node be gone for good, and forgotten, now or in the end."""
        host = self._host(number)
        if self._ledger.lost_disks or len(self.world.members) < 3:
            return
        self._note("lost disks")
        host.lose_disk()
        self._ledger.lost_disks.add(host.node_id)
        self.world.members.remove(host.node_id)
        if forgotten:
            for other in self._hosts():
                other.members.know(set(other.members.others) - {host.node_id})

    def _reset(self, number, hard):
        """Let one node forget all jobs and nodes, as CLUSTER RESET does."""
        host = self._host(number)
        if self._ledger.lost_disks or len(self.world.members) < 3 or not host.is_up:
            return
        self._note("resets")
        self._ledger.lost_disks.add(host.node_id)
        host.take(lambda: host.node.desk.flush(host.now))
        host.members.know(())
        if hard:
            self.world.rename(host)

    def _restore(self, number, share):
        """Let one node come back with its disk as it once was."""
        host = self._host(number)
        if self._ledger.lost_disks or len(self.world.members) < 3 or not host.is_up:
            return
        self._note("restored disks")
        self._ledger.lost_disks.add(host.node_id)
        host.kill(power=False, share=1.0)
        host.restore(share)
        self.world.pass_by(_LATE)  # what was sent to it before came to nobody
        host.start()

    def _note(self, what):
        self.world.tally[what] += 1

    # ---- the end

    def _end_trouble(self):
        world = self.world
        world.cut.clear()
        world.all_meet()
        world.links.see()
        for host in self._hosts():
            if not host.is_up:
                host.start()
            host.fails_until = world.now
            host.node.memory.limit = _PLENTY
            host.take(host.node.desk.leave, False, host.now)
        if world.faulty:
            world.pass_by(_LATE)
            world.all_meet()  # a node may be another by now
            world.links.see()
        for host in self._hosts():
            for queue in QUEUES:
                world.ask(host.node_id, "PAUSE", queue, "none")

    def _hosts(self):
        return [self.world.hosts[node_id] for node_id in self.world.members]

    def _drain(self):
        """Let consumers take all there is: everywhere, or at one node, to which jobs
        have to come; some ask each second, others wait."""
        chance = Random(f"{self.world.seed}/drain")
        numbers, seconds = range(len(self.world.members)), _DRAIN
        if chance.random() < 0.5:
            numbers, seconds = range(1), 2 * _DRAIN
        if self.world.faulty and not self.world.orderly:
            seconds += int(LONGEST)  # a mark may be lost, and jobs are held for so long
        waits = chance.random() < 0.5
        for number in numbers if waits else ():
            self.world.ask(self._host(number).node_id, *_WAIT, about=STAYS)
        busy = 0
        for second in range(seconds):
            for number in () if waits else numbers:
                self._consume(number)
            self.world.pass_by(1.0)
            busy = second if any(map(_has_work, self._hosts())) else busy
            if second - busy > _LATE:  # nor is a job on its way
                break
        owed = self._ledger.owed()
        if owed:
            raise Broken(f"lost: {owed}")
        self._see_producers()

    def _see_producers(self):
        """Nobody waits for copies any more, now that all nodes take some."""
        if self._ledger.lost_disks:  # of as many copies as there were nodes, perhaps
            return
        for host in self._hosts():
            waiting = sorted(host.node.jobs.spreads.waiting.values())
            if waiting:
                raise Broken(f"{host.node_id[:4]} still waits for copies of {waiting}")

    def _collect(self):
        self._ledger.is_drained = True
        for client in sorted(self.world.clients):
            self.world.hang_up(client)
        self.world.pass_by(_COLLECT)
        # Of one that comes at most once, copies that nobody will queue may lie about; and
        # with a job that is deleted goes what its node knew of acknowledgements.
        acked = self._ledger.acked - self._released()
        gone = {each for each in acked if int(each[-4:], 16) % 2}
        for host in self._hosts():
            left = gone & set(host.node.jobs.by_id)
            if left:
                raise Broken(f"{host.node_id[:4]} still has {sorted(left)}")
            check_node(host.node)
            left = set(host.node.jobs.spreads.bare)
            if left:
                raise Broken(f"{host.node_id[:4]} still has acknowledgements: {left}")
        self._see_silence()
        self._see_nothing()

    def _see_silence(self):
        """Nothing is to be said about jobs that are gone, nor are they handed out."""
        self._ledger.is_over = True
        before = self.world.letters
        self.world.pass_by(200.0)
        left = self._released_jobs_left()
        if self.world.letters != before and not left:
            raise Broken(f"{self.world.letters - before} letters about nothing")
        self._consume(0)
        self.world.pass_by(1.0)
        jobs = 10 + len(self._ledger.delivered)
        most = _LETTERS * jobs * len(self.world.hosts)
        most += _EACH_SECOND * self.world.now * len(left) * len(self.world.hosts) ** 2
        if self.world.letters > most:
            raise Broken(f"{self.world.letters} letters, which is too many")

    def _released_jobs_left(self):
        """Return the jobs that were deleted on some nodes and are still on others: those
        speak about them, and the former do not take them."""
        here = set().union(*(host.node.jobs.by_id for host in self._hosts()))
        return self._released() & here

    def _released(self):
        jobs = self._ledger.jobs.items()
        released = {job_id for job_id, promise in jobs if promise.released}
        return released | self._ledger.deleted

    def _see_nothing(self):
        """When no job can live any more, no node remembers anything of one."""
        self.world.pass_by(2 * _LATE)  # a job may be on its way
        for host in self._hosts():
            host.ahead += (
                _DAYS  # else what is queued and not taken moves on each second
            )
            host.take(lambda: None)
        self.world.pass_by(60.0)
        for host in self._hosts():
            left = kept_of(host.node)
            if left:
                raise Broken(f"{host.node_id[:4]} keeps {left}")


def _has_work(host):
    """Whether a job of a node may still be handed out."""
    return any(
        job.state in (State.QUEUED, State.WAIT_REPL)
        or (job.state is State.ACTIVE and job.due)
        for job in host.node.jobs.by_id.values()
    )


def kept_of(node):
    """Return what a node has in memory of jobs, by its name, where there is something."""
    jobs, replication = node.jobs, node.replication
    kept = {
        "jobs": jobs.by_id,
        "jobs by age": jobs.by_age,
        "queues": [each for each in jobs.queues.values() if each.paused == "none"],
        "copies": jobs.spreads.by_job,
        "tombstones": jobs.spreads.tombs,
        "producers": jobs.spreads.waiting,
        "waiting clients": node.desk.waiters,
        "waiting producers": replication.copies.waiters,
        "imports": replication.federation.queues,
        "letters": node.letters,
        "bytes": range(jobs.weight.bytes),
    }
    return {name: len(things) for name, things in kept.items() if len(things)}


def check_node(node):
    """Broken: what a node holds does not fit together."""
    jobs = node.jobs
    if any(each.state is State.WAIT_REPL for each in jobs.by_id.values()):
        raise Broken("a job waits for copies, and no producer for it")
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
