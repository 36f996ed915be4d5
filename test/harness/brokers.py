"""Several brokers that know each other, as processes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.broker import Broker
from harness.ports import free_port
from harness.waiting import wait_until

TIMEOUT = 1.0  # seconds of silence until these nodes suspect one


class Nodes:
    """Nodes with directories, ports and a client each, in one cluster."""

    def __init__(self, brokers: Sequence[Broker], *words: str) -> None:
        number = len(brokers)
        self.brokers = brokers
        self.hosts = ["127.0.0.1"] * number  # where others meet them
        self.bus_ports = [free_port() for _ in self.brokers]
        for broker, port in zip(self.brokers, self.bus_ports, strict=True):
            broker.words += ["--bus-port", str(port), *words]
        for broker in self.brokers:
            broker.begin()
        self.clients = [wait_until(broker.client) for broker in self.brokers]
        self.ids = [self.ask(n, "CLUSTER", "MYID").decode() for n in range(number)]
        for index in range(number):
            self.hurry(index)

    def hurry(self, index):
        """Let a node suspect others soon."""
        wanted = int(TIMEOUT * 1000)
        self.ask(index, "CONFIG", "SET", "cluster-node-timeout", wanted)

    def ask(self, index, *words):
        return self.clients[index].ask(*words)

    def meet(self, index, to):
        place = self.hosts[to], self.brokers[to].port, self.bus_ports[to]
        return self.ask(index, "CLUSTER", "MEET", *place)

    def rows(self, index):
        """Return what a node shows of all: their flags, and whether it is linked."""
        lines = self.ask(index, "CLUSTER", "NODES").decode().splitlines()
        words = [line.split() for line in lines]
        return {row[0]: (row[2], row[5]) for row in words}

    def sees(self, index, other):
        return self.rows(index).get(self.ids[other])

    def facts(self, index):
        lines = self.ask(index, "CLUSTER", "INFO").decode().split()
        return dict(line.split(":", 1) for line in lines)

    def holders(self, job_id):
        """Return which nodes have a job, by index."""
        numbers = range(len(self.clients))
        return [n for n in numbers if self.ask(n, "SHOW", job_id) is not None]

    def registered(self):
        """Return how many jobs each node has, queued or not."""
        infos = [self.ask(n, "INFO", "jobs") for n in range(len(self.clients))]
        return [int(_fact(info, b"registered_jobs")) for info in infos]

    def all_reach(self, others):
        """Whether each node reaches so many others."""
        counts = [
            self.facts(n)["cluster_reachable_nodes"] for n in range(len(self.clients))
        ]
        return counts == [str(others)] * len(counts)

    def join(self):
        """Let each meet the next, and wait until all reach all."""
        for index in range(1, len(self.brokers)):
            assert self.meet(index - 1, index) == "OK"
        self.wait_until_all_reach_all()

    def wait_until_all_reach_all(self, seconds=60.0):
        wait_until(lambda: self.all_reach(len(self.brokers) - 1), seconds)

    def close(self):
        for broker in self.brokers:
            broker.close()

    def kill(self, index):
        self.brokers[index].kill()

    def kill_all(self):
        """End all at the same moment, as a power cut of a rack does to processes."""
        for broker in self.brokers:
            broker.process.send_signal(signal.SIGKILL)
        for broker in self.brokers:
            broker.process.wait(60)

    def start(self, *indexes):
        """Start some together."""
        for index in indexes:
            self.brokers[index].begin()
        for index in indexes:
            self.clients[index] = wait_until(self.brokers[index].client)
            self.hurry(index)


def _fact(info: bytes, name: bytes) -> bytes:
    rows = dict(line.split(b":", 1) for line in info.split() if b":" in line)
    return rows[name]


@contextlib.contextmanager
def nodes_in(directory: Path, number: int, *words: str) -> Iterator[Nodes]:
    """Give so many nodes that run; `words` go to each."""
    brokers = [Broker(directory / f"node{n}") for n in range(number)]
    nodes = Nodes(brokers, *words)
    try:
        yield nodes
    finally:
        nodes.close()
