"""All dialects of the broker at once, for a quarter as long as the queues are soaked: it
grows in nothing, and what it has answered is so after a kill -9."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from harness.broker import Broker, Client, Refused, broker_in
from harness.extent import FULL
from harness.sizes import size_of
from harness.waiting import wait_until

pytestmark = pytest.mark.system

USUAL = "600" if FULL else "30"
SECONDS = float(os.environ.get("RQ_SOAK_SECONDS", USUAL)) / 4
QUEUES = tuple(f"q{n}\xff".encode() for n in range(5))
LEFT = 100  # jobs that nobody has acknowledged at the kill
Act = Callable[[Client, random.Random], None]


@dataclass
class Soak:
    """One run: who does what, and what was promised."""

    broker: Broker
    seed: int
    added: set[str] = field(default_factory=set)  # jobs, as was answered
    acknowledged: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    enough: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, seconds: float) -> None:
        """Let all happen at once for so long, then finish what is left."""
        self.enough.clear()
        acts: tuple[Act, ...] = (self.add, self.add, self.work, self.work)
        acts += (self.push, self.take_events, self.come_and_go)
        threads = [
            threading.Thread(target=self.go_on, args=(act, number))
            for number, act in enumerate(acts)
        ]
        for thread in threads:
            thread.start()
        self.enough.wait(seconds)
        self.enough.set()
        for thread in threads:
            thread.join(60)
        self.finish()

    def go_on(self, act: Act, number: int) -> None:
        """Do something again and again, over one connection."""
        source = random.Random(f"{self.seed} {number}")
        with contextlib.closing(Client(self.broker.port)) as client:
            try:
                while not self.enough.is_set():
                    act(client, source)
                    with self.lock:
                        self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
                    time.sleep(0.002)  # others on this machine work, too
            except Exception as error:  # noqa: BLE001 - told of at the end
                self.wrong.append(f"{act.__name__}: {error!r}")

    # ---- jobs

    def add(self, client: Client, source: random.Random) -> None:
        options = source.choice(
            [(), ("DELAY", 1), ("RETRY", 1), ("TTL", 86_400, "RETRY", 2)]
        )
        body = source.randbytes(source.choice([10, 200, 4000]))
        job = client.ask("ADDJOB", source.choice(QUEUES), body, 0, *options)
        assert not isinstance(job, Refused), job
        with self.lock:
            self.added.add(job)

    def work(self, client: Client, source: random.Random) -> None:
        """Take some jobs; most are done, some fail, some are forgotten, and come again."""
        words = ("TIMEOUT", 50, "COUNT", source.randint(1, 20), "FROM", *QUEUES)
        ids = [job.decode() for _, job, _ in client.ask("GETJOB", *words) or ()]
        done = [job for job in ids if source.random() < 0.9]
        if len(done) < len(ids) and source.random() < 0.7:
            client.ask("NACK", *set(ids).difference(done))
        self.acknowledge(client, done)

    def acknowledge(self, client: Client, ids: list[str]) -> None:
        answer = client.ask("ACKJOB", *ids)
        assert answer <= len(ids), answer
        with self.lock:
            self.acknowledged.update(ids)

    # ---- the other dialects

    def push(self, client: Client, source: random.Random) -> None:
        key = source.choice(QUEUES)
        ids = client.ask("RQ.PUSH", key, *[source.randbytes(100)] * 20)
        assert len(ids) == 20, ids
        got = client.ask("RQ.POP", "COUNT", 40, key)
        kept = [msg_id for _, msg_id, _ in got if source.random() < 0.5]
        client.ask("RQ.ACK", key, *kept or ["0-0"])
        again = client.ask("RQ.RECOVER", key, 100, 0)
        client.ask("RQ.ACK", key, *[msg_id for msg_id, _ in again] or ["0-0"])

    def take_events(self, client: Client, source: random.Random) -> None:
        client.ask("QADD", "events", source.uniform(0.1, 2.0), source.randbytes(100))
        for group in ("one", "two"):
            got = client.ask("QGET", "events", group, "EX", source.choice([0.2, 5]))
            if got and source.random() < 0.8:
                client.ask("QACK", "events", group, got[0])

    def come_and_go(self, _: Client, source: random.Random) -> None:
        """A client that waits, or is half way through a command, hangs up."""
        with contextlib.closing(Client(self.broker.port)) as gone:
            if source.random() < 0.5:
                gone.send("GETJOB", "FROM", f"nothing{source.randrange(50)}")
            else:
                gone.socket.sendall(b"*2\r\n$4\r\nQLEN\r\n$900\r\nx")

    # ---- rest

    @property
    def jobs(self) -> set[str]:
        """The jobs that live, as far as was answered."""
        return self.added - self.acknowledged

    def finish(self) -> None:
        """Let no job be left; what was answered is what lives."""
        with contextlib.closing(Client(self.broker.port)) as client:
            ids = live(client)
            assert ids == self.jobs
            self.acknowledge(client, list(ids))
            assert live(client) == self.jobs == set()
        self.added.clear()
        self.acknowledged.clear()


def live(client: Client) -> set[str]:
    """Return the ids of all jobs that there are."""
    return set(client.ask("JSCAN", "BUSYLOOP")[1])


def test_a_load_of_all_dialects_makes_nothing_grow(tmp_path, capsys):
    with broker_in(tmp_path / "node") as broker:
        broker.start()
        seed = int(os.environ.get("RQ_TEST_SEED", random.randrange(10**6)))
        soak = Soak(broker, seed)
        soak.run(max(3.0, SECONDS * 0.3))
        before = size_of(broker.process.pid)
        soak.run(SECONDS * 0.7)
        after = size_of(broker.process.pid)
        with capsys.disabled():
            sys.stdout.write(f"\nseed {seed}: {soak.done}\n  {before} → {after}\n")
        assert soak.wrong == []
        wait_until(lambda: size_of(broker.process.pid).within(before), 30)
        disk = sum(path.stat().st_size for path in broker.directory.rglob("*"))
        assert disk < 512 * 2**20
        prove_promises(soak)


def prove_promises(soak: Soak) -> None:
    """After a kill -9 all jobs live that were answered, and none that was acknowledged."""
    source = random.Random(soak.seed)
    client = soak.broker.client()
    while len(soak.jobs) < LEFT:
        soak.add(client, source)
        if source.random() < 0.3:
            soak.work(client, source)
    client = soak.broker.restart()
    assert live(client) == soak.jobs
