"""Any course of commands about jobs, with snapshots, crashes, power cuts and clocks
that jump between any two, against a plain model."""

from __future__ import annotations

from typing import NamedTuple

from harness.broker_world import CALM, ENDS, SLOT, BrokerMachine, World
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rq.broker.desks.job_desk import JITTER
from rq.broker.state.job import State
from rq.resp import NIL_ARRAY, Status

QUEUES = st.sampled_from([b"a", b"\xff:"])
BODIES = st.sampled_from([b"", b"one", b"\xff\x00"])
PICK = st.integers(0, 7)


class Kept(NamedTuple):
    """A job, as the model has it."""

    queue: bytes
    body: bytes
    ctime: int
    expires: float
    retry: float
    is_queued: bool
    due: float  # 0 in a queue: there it is of no concern, and may be moved without a line
    nacks: int
    deliveries: int
    was_queued: bool


class Disque(BrokerMachine):
    """Jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.newest = self.newest_answered = 0

    @staticmethod
    def view(node, now):
        world: World = {
            ("job", job.job_id): Kept(
                job.queue.name,
                job.body,
                job.ctime,
                round(job.expires, 3),
                job.retry,
                job.state is State.QUEUED,
                0.0 if job.state is State.QUEUED else job.due,
                job.nacks,
                job.deliveries,
                job.was_queued,
            )
            for job in node.jobs.by_id.values()
        }
        for queue in node.jobs.queues.values():
            if queue.paused != "none":
                world["pause", queue.name] = queue.paused
            ids = [job.job_id for job in queue.jobs]
            assert ids == queued(world, queue.name)
        return world

    def job(self, job_id: str) -> Kept | None:
        return self.world.get(("job", job_id))

    def put(self, job_id: str, job: Kept, **changed: object) -> None:
        self.world["job", job_id] = job._replace(**changed)

    def due_of(self, job_id: str, low: float, high: float) -> float:
        """Return when a job comes again, which has to be between the two."""
        due = self.node.jobs.by_id[job_id].due
        assert low <= due <= high, (due - low, due - high)
        return due

    def again(self, job_id: str, seconds: float) -> float:
        if not seconds:
            return self.due_of(job_id, 0.0, 0.0)
        at = self.now + seconds
        return self.due_of(job_id, at - JITTER - 1e-6, at + JITTER + 1e-6)

    def enters(self, job_id: str, job: Kept, **changed: object) -> None:
        """A job comes into its queue."""
        self.put(job_id, job, is_queued=True, was_queued=True, due=0.0, **changed)

    def answered(self) -> None:
        self.newest_answered = self.newest

    def restarted(self) -> None:
        self.newest = self.newest_answered

    def hold(self, world: World, at: float) -> None:
        for key, job in world.items():
            if key[0] == "job":
                world[key] = job._replace(expires=max(job.expires, round(at, 3)))

    def at_start(self, worlds: list[World], now: float) -> World:
        """When a job was over that is over, is of no concern."""
        seen = super().at_start(worlds, now)
        for world in (seen, *worlds):
            self.hold(world, now)
        return seen

    def settle(self, now: float, seen: World) -> None:
        for key, job in list(self.world.items()):
            if key[0] != "job":
                continue
            moments = [job.expires, *([job.due] if job.due else [])]
            if min(abs(at - now) for at in moments) < SLOT:
                self.world.pop(key)
                self.world.update({key: seen[key]} if key in seen else {})
            elif job.expires < now:
                del self.world[key]
            elif job.due and job.due < now:
                self.comes(key[1], job)

    def comes(self, job_id: str, job: Kept) -> None:
        """A job is due."""
        paused = self.world.get(("pause", job.queue))
        if paused in ("in", "all") and job.retry:
            self.put(job_id, job, due=self.again(job_id, max(job.retry, 1.0)))
        else:
            self.enters(job_id, job, deliveries=job.deliveries + job.was_queued)

    @rule(
        queue=QUEUES,
        body=BODIES,
        retry=st.sampled_from([0, 0, 1, 5]),
        delay=st.sampled_from([0, 0, 3]),
        ttl=st.sampled_from([4, 60, 3600]),
        ends=ENDS,
    )
    def addjob(self, queue, body, retry, delay, ttl, ends):
        words = ("RETRY", retry, "DELAY", delay, "TTL", ttl)
        value = self.ask("ADDJOB", queue, body, 0, *words)
        if self.world.get(("pause", queue)) in ("in", "all"):
            assert value == "PAUSED Queue paused in input, try later"
            return
        assert isinstance(value, Status)
        assert value.text not in self.ids
        ctime = self.node.jobs.by_id[value.text].ctime
        assert ctime > self.newest, "an older job would be behind this one"
        self.newest = ctime
        self.ids.append(value.text)
        due = self.due_of(value.text, *[self.now + delay] * 2) if delay else 0.0
        expires = round(self.now + ttl, 3)
        facts = (queue, body, ctime, expires, retry, not delay, due, 0, 0, not delay)
        self.world["job", value.text] = Kept(*facts)
        self.said(ends)

    @rule(queue=QUEUES, count=st.integers(1, 3), leaves=st.booleans(), ends=ENDS)
    def getjob(self, queue, count, leaves, ends):
        """With `leaves` the client is gone before a byte of the answer is sent."""
        paused = self.world.get(("pause", queue)) in ("out", "all")
        expected = [] if paused else queued(self.world, queue)[:count]
        value = self.ask("GETJOB", "NOHANG", "COUNT", count, "FROM", queue)
        assert ([] if value is NIL_ARRAY else [each[1] for each in value]) == expected
        for job_id in expected:
            job = self.job(job_id)
            due, wait = 0.0, max(job.retry, 1.0) + JITTER + 1e-6
            if job.retry:
                due = self.due_of(job_id, self.now - SLOT, self.now + wait)
            self.put(job_id, job, is_queued=False, due=due)
        if leaves:
            for job_id in expected:
                due = self.node.jobs.by_id[job_id].due
                self.node.desk.take_back(job_id, due, self.now)
                self.enters(job_id, self.job(job_id))
        self.said(ends, any(not self.job(job_id).retry for job_id in expected))

    @precondition(lambda self: self.ids)
    @rule(picks=st.lists(PICK, min_size=1, max_size=2), ends=ENDS)
    def ackjob(self, picks, ends):
        ids = list(dict.fromkeys(self.picked(pick) for pick in picks))
        there = [job_id for job_id in ids if self.job(job_id)]
        assert self.ask("ACKJOB", *ids) == len(there)
        for job_id in there:
            del self.world["job", job_id]
        self.said(ends)

    def picked(self, number: int) -> str:
        """Return an id, of a new job rather than of an old one."""
        return self.ids[-1 - number % len(self.ids)]

    @precondition(lambda self: self.ids)
    @rule(pick=PICK, word=st.sampled_from(["NACK", "ENQUEUE"]), ends=ENDS)
    def comes_at_once(self, pick, word, ends):
        job_id = self.picked(pick)
        job = self.job(job_id)
        can = job is not None and not job.is_queued and bool(job.due)
        assert self.ask(word, job_id) == can
        if can:
            nack = word == "NACK"
            more = job.was_queued and not nack
            counters = {"nacks": job.nacks + nack, "deliveries": job.deliveries + more}
            self.enters(job_id, job, **counters)
        self.said(ends)

    @precondition(lambda self: self.ids)
    @rule(pick=PICK, ends=ENDS)
    def working(self, pick, ends):
        job_id = self.picked(pick)
        job, value = self.job(job_id), self.ask("WORKING", job_id)
        if job is None:
            assert value.startswith("NOJOB ")
        elif isinstance(value, str):
            assert value.startswith("TOOLATE ")
        else:
            assert value == job.retry
            due = self.again(job_id, job.retry) if job.retry else job.due
            self.put(job_id, job, is_queued=False, due=due)
        self.said(ends)

    @rule(queue=QUEUES, word=st.sampled_from(["in", "out", "all", "none", "none"]))
    def pause(self, queue, word):
        assert self.ask("PAUSE", queue, word) == Status(word)
        self.world.pop(("pause", queue), None)
        if word != "none":
            self.world["pause", queue] = word
        self.said(True)

    @rule(really=st.integers(0, 4))
    def flush(self, really):
        if really == 0:
            self.node.desk.flush(self.now)
            self.world.clear()
            self.said(True)


def queued(world: World, queue: bytes) -> list[str]:
    """Return the jobs in a queue, in their order."""
    jobs = [(key[1], job) for key, job in world.items() if key[0] == "job"]
    mine = [(job.ctime, each) for each, job in jobs if job.queue == queue]
    there = {each for each, job in jobs if job.is_queued}
    return [each for _, each in sorted(mine) if each in there]


Disque.TestCase.settings = CALM
TestDisque = Disque.TestCase
