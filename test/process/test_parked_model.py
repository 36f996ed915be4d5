"""Many queues that are parked and woken at random, beside a model: what was accepted runs,
nothing is refused but by a process that was killed, and what is read of a parked queue is
what the model says."""

import contextlib
import functools
import os
import random
import signal
import time

import pytest
from harness.supervisor import daemon_on
from harness.waiting import wait_until

from rq.config import parked
from rq.errors import Closed, OutcomeUnknown, Unreachable
from rq.proc import locks
from rq.rpc import client

pytestmark = [pytest.mark.process, pytest.mark.slow]
QUEUES = int(os.environ.get("RQ_PARKED_QUEUES", "8"))
SECONDS = float(os.environ.get("RQ_PARKED_SECONDS", "15"))
SEED = int(os.environ.get("RQ_PARKED_SEED", "0")) or random.randrange(1_000_000)
LONG = 120.0
REFUSED = (Closed, OutcomeUnknown, Unreachable)
SCRIPT = '#!/bin/sh\necho "$RQ_FULL_MSG_ID" >> "$RQ_ROOT/ran"\necho done >&3\n'


class World:
    """A root, what was accepted in each of its queues, and which of these were killed."""

    def __init__(self, daemon):
        self.daemon, self.random = daemon, random.Random(SEED)
        self.names = [f"q{number}" for number in range(QUEUES)]
        self.accepted = {name: [] for name in self.names}
        self.killed = set()
        self.read = 0

    def send(self, name, **fields):
        try:
            with client.Connection(self.daemon.root.queue(name).socket) as line:
                answer = line.ask("create_message", {"dest": name, **fields})
            self.accepted[name].append(client.demanded(answer))
        except REFUSED:
            assert name in self.killed, f"seed {SEED}: {name} refused"

    def send_later(self, name):
        self.send(name, due=time.time() + self.random.uniform(2, 6))

    def crowd(self, name):
        with contextlib.suppress(*REFUSED), contextlib.ExitStack() as stack:
            path = self.daemon.root.queue(name).socket
            lines = [stack.enter_context(client.Connection(path)) for _ in range(5)]
            for line in lines:
                line.send("create_message", {"dest": name})
            for line in lines:
                self.accepted[name].append(client.demanded(line.receive()))
            return
        assert name in self.killed, f"seed {SEED}: {name} refused"

    def left_by(self, name):
        """Return what the queue has left to be read, if it is parked."""
        return parked.answer(self.daemon.root, name, "num_messages")

    def look(self, name):
        answer = self.left_by(name)
        if answer is not None and name not in self.killed:
            held = sum(answer[state] for state in ("que", "run", "done"))
            assert held == len(self.accepted[name]), f"seed {SEED}: {name} {answer}"
            self.read += 1

    def kill(self, name):
        pid = self.daemon.child(name)["pid"]
        if pid:
            self.killed.add(name)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self, name):
        self.killed.add(name)
        self.daemon.ask("restart_queue", name)

    def check(self, name):
        """Hold the lock for a moment, as a command does that moves or mends a queue."""
        held = locks.lock(self.daemon.root.queue(name).lock)
        if held is not None:
            time.sleep(0.05)
            os.close(held)

    def step(self):
        acts = [self.send] * 6 + [self.send_later] * 2 + [self.look] * 6
        acts += [self.crowd, self.kill, self.restart, self.check]
        self.random.choice(acts)(self.random.choice(self.names))

    def is_over(self):
        ran = (self.daemon.root.path / "ran").read_text().split()
        wanted = [full_id for ids in self.accepted.values() for full_id in ids]
        return set(wanted) <= set(ran)


def test_what_was_accepted_runs_and_what_is_read_is_so(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.script.write_text(SCRIPT)
        daemon.start()
        world = World(daemon)
        for name in world.names:
            daemon.create(name, park="1s")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            world.step()
            if world.random.random() < 0.1:  # so that many are parked
                pause = time.monotonic() + world.random.uniform(0, 2)
                wait_until(lambda: time.monotonic() > pause, LONG)  # noqa: B023
        wait_until(world.is_over, LONG)
        assert sum(map(len, world.accepted.values())) > SECONDS
        for name in world.names:
            # Of many there is always one that its chores of an hour that is over have woken.
            answer = wait_until(functools.partial(world.left_by, name), LONG)
            assert answer["done"] >= len(world.accepted[name])
            assert answer["err"] == answer["que"] == answer["run"] == 0
