"""Three nodes of the broker on this host beside one alone, in the same run and on the same
disk: what copies cost, and how soon a node is back.

    PYTHONPATH=.:test/bench .venv/bin/python test/bench/broker_cluster.py [--quick]
        [--disk DISK] [--jobs N]

prints each figure as it comes, and the goals in the end. `cpu` is what one costs all nodes;
nodes and clients share the cores. RQ_BENCH_PROFILE=FILE profiles the first node.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bench
import server
from broker import CLIENTS, show
from broker_goals import Goal
from dialogue import Dialogue, command, cpu_of, hold, repeated

BODY = b"b" * 100
MEMORY = b"%d" % (4 * 1024**3)  # bytes of jobs: more than a million with copies take
RETRY = 1  # seconds, of the job whose node dies
PATIENCE = 120.0
ONE, MANY = "ADDJOB REPLICATE 3, 1 client", "ADDJOB REPLICATE 3, 50 clients"
START, AGAIN, BACK = "start of a node", "again after its node's death", "back"
GOALS = (
    Goal(name=f"{ONE}: p50", most=0.004),
    Goal(name=MANY, least=2500),
    Goal(name=START, most=1.0),
    Goal(name=AGAIN, most=RETRY + 1.0),
    Goal(name=BACK, most=60.0),
)


class Node:
    """A node with a directory and ports of its own, which can die and start again."""

    def __init__(self, where: Path, *, profile: str | None = None) -> None:
        self.where = where
        self.port, self.bus_port = server.free_port(), server.free_port()
        self._wrapped = ["-m", "cProfile", "-o", profile] if profile else []
        self._stack = contextlib.ExitStack()
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it; return the seconds until it answers."""
        words = [sys.executable, *self._wrapped, "-m", "rq.broker"]
        words += ["--dir", str(self.where / "node"), "--port", str(self.port)]
        words += ["--bus-port", str(self.bus_port)]
        env = {"PYTHONPATH": str(bench.REPOSITORY)}
        began = time.perf_counter()
        running = server.running(words, self.where / "log", env)
        self.child = self._stack.enter_context(running)
        server.until(lambda: server.says(self.port, b"PING\r\n", b"+PONG"), PATIENCE)
        took = time.perf_counter() - began
        self.ask(b"CONFIG", b"SET", b"maxmemory", MEMORY)
        return took

    def die(self) -> None:
        assert self.child is not None
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        self._stack.close()

    def ask(self, *words: bytes) -> bytes:
        """Return the first bytes of an answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as line:
            line.sendall(command(*words))
            return line.recv(4096)


def main() -> None:
    options = parse()
    with bench.disks(options.disk) as disks:
        for disk in disks:
            print(f"\n{disk.name}, load {os.getloadavg()[0]:.1f}")
            found: dict[str, float] = {}
            share = 0.05 if options.quick else 1.0
            with nodes_in(disk.path, 1, None) as (node,):
                alone(node, share, found)
            profile = os.environ.get("RQ_BENCH_PROFILE")
            with nodes_in(disk.path, 3, profile) as nodes:
                together(nodes, share, found)
                after_a_death(nodes, found)
                back_with(nodes, options.jobs, found)
            for goal in GOALS:
                goal.show(found)


@contextlib.contextmanager
def nodes_in(disk: Path, number: int, profile: str | None) -> Iterator[list[Node]]:
    """Give nodes that know each other."""
    with tempfile.TemporaryDirectory(dir=disk) as where:
        nodes = []
        for index in range(number):
            place = Path(where, str(index))
            place.mkdir()
            nodes.append(Node(place, profile=None if index else profile))
        try:
            for node in nodes:
                node.start()
            for one, other in itertools.pairwise(nodes):
                place = b"127.0.0.1", b"%d" % other.port, b"%d" % other.bus_port
                one.ask(b"CLUSTER", b"MEET", *place)
            until_all_reach_all(nodes)
            yield nodes
        finally:
            for node in nodes:
                node.close()


def until_all_reach_all(nodes: list[Node]) -> None:
    wanted = b"cluster_reachable_nodes:%d\r" % (len(nodes) - 1)
    server.until(
        lambda: all(wanted in node.ask(b"CLUSTER", b"INFO") for node in nodes), PATIENCE
    )


def alone(node: Node, share: float, found: dict[str, float]) -> None:
    """Take the figures of one node that has no others."""
    take([node], "ADDJOB alone, 1 client", added(b"1", int(2000 * share)), 1, found)
    many = added(b"1", int(40_000 * share / CLIENTS))
    take([node], "ADDJOB alone, 50 clients", many, CLIENTS, found)


def together(nodes: list[Node], share: float, found: dict[str, float]) -> None:
    """Take those of three."""
    take(nodes, ONE, added(b"3", int(1000 * share)), 1, found)
    many = added(b"3", int(20_000 * share / CLIENTS))
    take(nodes, MANY, many, CLIENTS, found)


def added(copies: bytes, rounds: int) -> tuple[bytes, int]:
    words = b"ADDJOB", b"added", BODY, b"9000", b"REPLICATE", copies, b"RETRY", b"3600"
    return command(*words), max(1, rounds)


def take(
    nodes: list[Node],
    name: str,
    asked: tuple[bytes, int],
    clients: int,
    found: dict[str, float],
) -> None:
    spoken: list[Dialogue] = [repeated(asked[0], 1, asked[1]) for _ in range(clients)]
    pids = [node.child.pid for node in nodes if node.child is not None]
    before = sum(map(cpu_of, pids))
    outcome = hold(nodes[0].port, pids[0], spoken)
    cpu = (sum(map(cpu_of, pids)) - before) / outcome.requests
    found[name] = outcome.requests / outcome.seconds
    found[f"{name}: p50"] = bench.percentile(outcome.took, 0.5)
    show(name, found[name], outcome.took, cpu)


def after_a_death(nodes: list[Node], found: dict[str, float]) -> None:
    """Let the node that handed a job out die, and see when another one does."""
    first, second, third = nodes
    words = b"ADDJOB", b"dies", BODY, b"9000", b"REPLICATE", b"3"
    third.ask(*words, b"RETRY", b"%d" % RETRY)
    queued = time.perf_counter()
    get = b"GETJOB", b"NOHANG", b"FROM", b"dies"
    assert third.ask(*get).startswith(b"*1")
    third.die()
    server.until(
        lambda: any(node.ask(*get)[:2] == b"*1" for node in (first, second)), PATIENCE
    )
    found[AGAIN] = time.perf_counter() - queued
    print(f"  {AGAIN:40}{found[AGAIN]:10.2f} s (RETRY {RETRY})")
    found[START] = third.start()
    print(f"  {START:40}{found[START]:10.2f} s")
    until_all_reach_all(nodes)


def back_with(nodes: list[Node], jobs: int, found: dict[str, float]) -> None:
    """Kill a node with so many jobs, and see when it has them and reaches all."""
    rounds = max(1, jobs // CLIENTS)
    filled = [repeated(added(b"3", rounds)[0], 1, rounds) for _ in range(CLIENTS)]
    assert nodes[0].child is not None
    hold(nodes[0].port, nodes[0].child.pid, filled)
    nodes[2].die()
    began = time.perf_counter()
    nodes[2].start()
    until_all_reach_all(nodes)
    found[BACK] = time.perf_counter() - began
    assert nodes[2].child is not None
    cpu = cpu_of(nodes[2].child.pid)
    print(
        f"  {f'{BACK} with {jobs:,} jobs':40}{found[BACK]:10.2f} s, {cpu:.1f} s of cpu"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small numbers, seconds")
    parser.add_argument("--disk", choices=["loop", "disk"])
    parser.add_argument("--jobs", type=int, help="of a node's start (1,000,000)")
    options = parser.parse_args()
    options.jobs = options.jobs or (50_000 if options.quick else 1_000_000)
    return options


if __name__ == "__main__":
    main()
