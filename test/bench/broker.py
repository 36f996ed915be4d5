"""The broker beside Redis and beanstalkd: same disk, same run, all on disk before the
answer.

    PYTHONPATH=.:test/bench .venv/bin/python test/bench/broker.py [--quick] [--disk DISK]

prints each figure as it comes, and the goals in the end. `cpu` is what one costs the
server, which tells more than a rate on a busy machine; both cores are shared by server
and clients. RQ_BENCH_PROFILE=FILE profiles the broker.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import bench
import beside
import broker_dialogues as say
import programs
import server
from broker_blocked import delivered
from broker_goals import GOALS
from dialogue import Dialogue, hold
from programs import Program

CLIENTS = 50
AT_ONCE = 16
GROUPS = 10


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure: what is said, by how many clients."""

    name: str
    dialogue: Callable[[bytes, int], Dialogue]  # of one client: its name, its rounds
    rounds: int  # of all clients
    clients: int = 1
    things: int = 1  # of what is counted in a round


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A server, and what it is asked."""

    name: str
    start: Callable[[Path], AbstractContextManager[Program]]
    rows: list[Row]
    blocked: tuple[bytes, bytes, int, int]  # who waits, who sends; lines for both
    missing: str | None = None  # why it is not there


def everyone(share: float) -> list[Peer]:
    """Return all servers; `share`: how much each is asked."""
    return [ours(share), redis(share), beanstalkd(share)]


def ours(share: float) -> Peer:
    return Peer(
        name="broker",
        start=broker,
        rows=[
            *adding("ADDJOB", say.addjob, share),
            cycle("ADDJOB GETJOB ACKJOB", say.job_cycle, share),
            batch("RQ.PUSH RQ.POP RQ.ACK", say.reliable_batch, share),
            Row(
                name="QADD, 16 in a packet",
                dialogue=say.event_adding,
                rounds=events(share),
            ),
            groups("QGET QACK", say.event_group, share),
        ],
        blocked=(*say.BLOCKED_JOB, 8, 1),
    )


def redis(share: float) -> Peer:
    return Peer(
        name="redis",
        start=programs.redis,
        rows=[
            *adding("LPUSH", say.lpush, share),
            *adding("XADD", say.xadd, share),
            Row(name="XGROUP", dialogue=say.stream_making, rounds=1),
            cycle("XADD XREADGROUP XACK", say.stream_cycle, share),
            batch("XADD×100 XREADGROUP XACK", say.stream_batch, share),
            Row(
                name="XADD, 16 in a packet",
                dialogue=say.stream_adding,
                rounds=events(share),
            ),
            groups("XREADGROUP XACK", say.stream_group, share),
        ],
        blocked=(*say.BLOCKED_LIST, 5, 1),
        missing=server.get_program("redis-server", "redis-server"),
    )


def beanstalkd(share: float) -> Peer:
    return Peer(
        name="beanstalkd",
        start=programs.beanstalkd,
        rows=[
            *adding("put", say.put, share),
            cycle("put reserve delete", say.tube_cycle, share),
            batch("put reserve delete ×100", say.tube_batch, share),
        ],
        blocked=(*say.BLOCKED_TUBE, 2, 1),
        missing=server.get_program("beanstalkd", "beanstalkd"),
    )


def adding(
    name: str, dialogue: Callable[[bytes, int], Dialogue], share: float
) -> list[Row]:
    one, many = int(5_000 * share), int(60_000 * share)
    return [
        Row(name=f"{name}, 1 client", dialogue=dialogue, rounds=one),
        Row(
            name=f"{name}, 50 clients", dialogue=dialogue, rounds=many, clients=CLIENTS
        ),
    ]


def cycle(name: str, dialogue: Callable[[bytes, int], Dialogue], share: float) -> Row:
    rounds = int(20_000 * share)
    return Row(
        name=f"{name}, 16 at once", dialogue=dialogue, rounds=rounds, clients=AT_ONCE
    )


def batch(name: str, dialogue: Callable[[bytes, int], Dialogue], share: float) -> Row:
    rounds = int(1_000 * share)
    return Row(
        name=f"{name} of 100", dialogue=dialogue, rounds=rounds, things=say.BATCH
    )


def events(share: float) -> int:
    return int(8_000 * share)


def groups(name: str, dialogue: Callable[[bytes, int], Dialogue], share: float) -> Row:
    return Row(
        name=f"{name} by 10 groups",
        dialogue=dialogue,
        rounds=events(share) // say.PIPELINE * GROUPS,
        clients=GROUPS,
        things=say.PIPELINE,
    )


def main() -> None:
    options = parse()
    with bench.disks(options.disk) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            found = measured(disk.path, 0.02 if options.quick else 1.0, options.only)
            for goal in GOALS:
                goal.show(found)


def measured(disk: Path, share: float, only: list[str] | None) -> dict[str, float]:
    """Take all figures; return them by name."""
    found = {"fdatasync": raw(disk)}
    for peer in everyone(share):
        if only and peer.name not in only:
            continue
        if peer.missing:
            print(f"  {peer.name}: {peer.missing}")
            continue
        with (
            tempfile.TemporaryDirectory(dir=disk) as where,
            peer.start(Path(where)) as at,
        ):
            for row in peer.rows:
                take(row, at, found)
            take_blocked(peer, at, int(2_000 * share), found)
    return found


def raw(disk: Path) -> float:
    """Return how often a second the disk makes an append durable."""
    took = beside.syncs(disk / "raw", filled=True, seconds=1.0)
    show("fdatasync of 350 bytes", len(took) / sum(took), took, 0.0)
    return len(took) / sum(took)


def take(row: Row, at: Program, found: dict[str, float]) -> None:
    rounds = max(1, row.rounds // row.clients)
    spoken = [row.dialogue(b"c%d" % number, rounds) for number in range(row.clients)]
    outcome = hold(at.port, at.pid, spoken)
    things = rounds * row.clients * row.things
    found[row.name] = things / outcome.seconds
    found[f"{row.name}: p99"] = bench.percentile(outcome.took, 0.99)
    show(row.name, found[row.name], outcome.took, outcome.cpu / things)


def take_blocked(peer: Peer, at: Program, times: int, found: dict[str, float]) -> None:
    """Measure how long after the answer to who sends who waits has it."""
    took = delivered(at.port, *peer.blocked, times)
    found[f"{peer.name}: blocked"] = bench.percentile(took, 0.5)
    show(f"{peer.name}: to who waits", 0.0, took, 0.0)


def show(name: str, rate: float, took: list[float], cpu: float) -> None:
    p50, p99 = (bench.percentile(took, share) * 1e3 for share in (0.5, 0.99))
    a_second = f"{rate:10,.0f}/s" if rate else " " * 12
    costs = f"   cpu {cpu * 1e6:6.1f} µs" if cpu else ""
    print(
        f"  {name:40}{a_second}   p50 {p50:7.2f} ms  p99 {p99:7.2f} ms{costs}",
        flush=True,
    )


@contextlib.contextmanager
def broker(where: Path) -> Iterator[Program]:
    """Run a node of the broker."""
    port, profile = server.free_port(), os.environ.get("RQ_BENCH_PROFILE")
    wrapped = ["-m", "cProfile", "-o", profile] if profile else []
    words = [sys.executable, *wrapped, "-m", "rq.broker", "--dir", str(where / "node")]
    env = {"PYTHONPATH": str(bench.REPOSITORY)}
    with server.running([*words, "--port", str(port)], where / "log", env) as child:
        server.until(lambda: server.says(port, b"PING\r\n", b"+PONG"), 60)
        yield Program(port=port, pid=child.pid)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small numbers, seconds")
    parser.add_argument("--disk", choices=["loop", "disk"])
    parser.add_argument("--only", nargs="+", help="names of servers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
