"""RQ beside its peers: same disk, same run, every accepted message on disk.

    PYTHONPATH=.:test/bench .venv/bin/python test/bench/peers [--quick] [--disk DISK]

prints one table. Each figure of a peer stands with its ratio to RQ's; absolute figures
of another machine or another day mean little. Needs the network once, to install peers
into --env; as root Debian's redis-server and beanstalkd are installed, too, and the disk
is a loop image with a journaled ext4.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bench
import peers
import raw
import table
from peers import Peer


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of each."""

    burst: int
    seconds: float
    cycle: int
    starts: int
    queued: int
    rounds: int


QUICK = Sizes(burst=2000, seconds=3, cycle=300, starts=20, queued=10_000, rounds=1)
WHOLE = Sizes(
    burst=20_000, seconds=15, cycle=2000, starts=100, queued=1_000_000, rounds=3
)


Figures = Iterator[tuple[str, float]]
Take = Callable[[Peer, Path, Sizes], Figures]


def main() -> None:
    options = parse()
    begun = time.monotonic()
    sizes = QUICK if options.quick else WHOLE
    if options.queued:
        sizes = Sizes(**{**vars(sizes), "queued": options.queued})
    options.env.mkdir(parents=True, exist_ok=True)
    with bench.disks(options.disk) as disks:
        found = table.Table(disk=disks[-1].name, queued=sizes.queued)
        here = [one for one in chosen(options) if installed(one, found)]
        # In rounds, so that a minute of another's load does not meet one peer only.
        for _ in range(sizes.rounds):
            for take in (accepted, processes, stays):
                for peer in here:
                    measure(peer, take, disks[-1].path, sizes, found)
            raw.measure(disks[-1].path, sizes.cycle, found)
        for peer in here:
            measure(peer, full, disks[-1].path, sizes, found)
        print(found.text(time.monotonic() - begun))


def chosen(options: argparse.Namespace) -> list[Peer]:
    return [
        one
        for one in peers.every(options.env)
        if not options.only or one.name.split()[0] in options.only
    ]


def installed(peer: Peer, found: table.Table) -> bool:
    why = peer.install()
    if why:
        found.missing(peer.name, why)
    else:
        found.begin(peer.name, peer.about)
    return not why


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small numbers, ~2 minutes"
    )
    parser.add_argument(
        "--disk",
        choices=["loop", "disk"],
        default="loop" if os.getuid() == 0 else "disk",
    )
    parser.add_argument("--queued", type=int, help="instead of a million")
    parser.add_argument("--only", nargs="+", help="first words of peers' names")
    parser.add_argument(
        "--env", type=Path, default=Path(tempfile.gettempdir(), "rq-peers")
    )
    return parser.parse_args()


def measure(
    peer: Peer, take: Take, disk: Path, sizes: Sizes, found: table.Table
) -> None:
    """Take figures of one peer; one that fails or takes too long says so."""
    print(f"{peer.name}: {take.__name__}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=disk) as where:
        try:
            for figure, value in take(peer, Path(where), sizes):
                found.put(peer.name, figure, value)
        except (subprocess.SubprocessError, SystemExit) as error:
            found.trouble(peer.name, f"{take.__name__}: {error}")


def accepted(peer: Peer, where: Path, sizes: Sizes) -> Figures:
    limit = sizes.seconds * 4 + 60
    with peer.accepting(where) as one:
        got = peers.ask(one, "accept", 1, sizes.burst, sizes.seconds, limit=limit)
        yield "accept, 1 client", got["rate"]
        yield "accept p50, 1 client", got["p50"]
        yield "accept p99, 1 client", got["p99"]
        got = peers.ask(one, "accept", 64, sizes.burst, sizes.seconds, limit=limit)
        yield "accept, 64 clients, burst", got["rate"]
        got = peers.ask(one, "sustained", 64, sizes.seconds, limit=limit)
        yield "accept, 64 clients, sustained", got["rate"]
        yield "accept p99, 64 clients", got["p99"]


def processes(peer: Peer, where: Path, sizes: Sizes) -> Figures:
    with peer.forking(where) as one:
        limit = sizes.seconds * 4 + 60
        # Starts first: what a slow peer has left over would stand before them.
        got = peers.ask(one, "starts", sizes.starts, sizes.seconds * 2, limit=limit)
        yield "start p50, a process per message", got["p50"]
        yield "start p99, a process per message", got["p99"]
        got = peers.ask(one, "cycle", 8, sizes.cycle, sizes.seconds * 2, limit=limit)
        yield "cycle, a process per message", got["rate"]


def stays(peer: Peer, where: Path, sizes: Sizes) -> Figures:
    with peer.staying(where) as one:
        limit = sizes.seconds * 4 + 60
        many = sizes.cycle * 3
        got = peers.ask(one, "cycle", 8, many, sizes.seconds * 2, limit=limit)
        yield "cycle, workers that stay", got["rate"]


def full(peer: Peer, where: Path, sizes: Sizes) -> Figures:
    with peer.accepting(where) as one:
        before = one.memory()
        peers.ask(one, "fill", sizes.queued, limit=sizes.queued / 500 + 60)
        if one.pids:
            yield "memory of a queued message", (one.memory() - before) / sizes.queued
        for pid in one.pids:
            os.kill(pid, 9)
    cold()
    begun = time.monotonic()
    with peer.again(where) as one:
        waiting = peers.ask(one, "waiting", limit=600)
        yield "ready again after kill -9", time.monotonic() - begun
        if waiting != sizes.queued:
            raise SystemExit(f"{waiting} of {sizes.queued} there after kill -9")


def cold() -> None:
    """Forget what the kernel has read, where that is allowed."""
    os.sync()
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("3\n")


if __name__ == "__main__":
    main()
