"""Leases end in looks of the loop; the time in which nobody could be heard is left out."""

from types import SimpleNamespace

import pytest
from harness.spool import Clock

from rq.queues.attempts.lease import Lease
from rq.queues.attempts.leases import Leases
from rq.queues.leases import ends
from rq.queues.leases.ends import BEAT, Expiry
from rq.spool import Held


class World:
    """A queue with one lease of ten seconds, and a loop that is told when to look."""

    def __init__(self, monkeypatch):
        self.clock = Clock(0.0)
        monkeypatch.setattr(ends.time, "monotonic", self.clock)
        self.leases = Leases(self.clock)
        self.failed = None
        self.calls = []
        loop = SimpleNamespace(call_later=lambda _, call: self.calls.append(call))
        self.spool = SimpleNamespace(
            journal_failed=None,
            group_full=False,
            entry=lambda msg_id: SimpleNamespace(busy=msg_id == "busy"),
        )
        owner = SimpleNamespace(
            leases=self.leases,
            admission=SimpleNamespace(disk_failed=None, restored=None),
            spool=self.spool,
            loop=loop,
            wake=lambda: None,
        )
        self.ended = []
        self.expiry = Expiry(owner, SimpleNamespace(run_out=self._run_out))

    def _run_out(self, lease):
        self.ended.append(lease.msg_id)
        self.leases.forget(lease)

    def lease(self, msg_id="m"):
        held = Held(
            attempt=1,
            token=msg_id,
            by="b",
            seconds=10.0,
            since=0.0,
            renewed=0.0,
            started=True,
        )
        self.leases.add(
            Lease(
                msg_id=msg_id,
                held=held,
                seconds=10.0,
                until=self.leases.now() + 10,
                heard=self.leases.now(),
                wait_us=0,
                message=None,
                noted=0.0,
            )
        )
        self.expiry.mind()

    def passes(self, seconds, beat=BEAT):
        """Let time pass, with a look every so often."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.clock.now += beat
            for call in [self.calls.pop() for _ in self.calls]:
                call()


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_a_lease_ends_at_the_look_behind_its_end(world):
    world.lease()
    world.passes(9.5)
    assert world.ended == []
    world.passes(0.5)
    assert world.ended == ["m"]
    assert world.calls == []  # nothing is out: nobody looks


def test_while_the_journal_cannot_be_written_no_lease_ends(world):
    world.lease()
    world.passes(5)
    world.spool.journal_failed = "EIO"
    world.passes(1000)
    world.spool.journal_failed = None
    world.passes(4.5)
    assert world.ended == []
    world.passes(1)
    assert world.ended == ["m"]


def test_a_loop_that_stood_still_ends_no_lease(world):
    world.lease()
    world.passes(5)
    world.passes(100, beat=100)
    world.passes(4.5)
    assert world.ended == []
    world.passes(1)
    assert world.ended == ["m"]


def test_a_lease_whose_file_is_handed_in_waits(world):
    world.lease("busy")
    world.passes(60)
    assert world.ended == []
