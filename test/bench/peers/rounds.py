"""What is measured of each peer, and how all is gone through: one that fails is a row."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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


Figures = Iterator[tuple[str, float]]
Take = Callable[[Peer, Path, Sizes], Figures]


def everything(
    asked: Sequence[Peer], disk: Path, sizes: Sizes, found: table.Table
) -> None:
    """Take all figures of all peers that can be had."""
    here = [one for one in asked if installed(one, found)]
    # In rounds, so that a minute of another's load does not meet one peer only.
    for _ in range(sizes.rounds):
        for take in (accepted, processes, stays):
            for peer in here:
                measure(peer, take, disk, sizes, found)
        machine(disk, sizes, found)
    for peer in here:
        measure(peer, full, disk, sizes, found)


def installed(peer: Peer, found: table.Table) -> bool:
    try:
        why = peer.install()
    except Exception as error:  # noqa: BLE001 - a loop iteration
        why = f"it cannot be installed: {told(error)}"
    if why:
        found.missing(peer.name, why)
    else:
        found.begin(peer.name, peer.about)
    return not why


def machine(disk: Path, sizes: Sizes, found: table.Table) -> None:
    print("raw machine", file=sys.stderr, flush=True)
    try:
        raw.measure(disk, sizes.cycle, found)
    except Exception as error:  # noqa: BLE001 - a loop iteration
        found.trouble("raw machine", told(error))


def measure(
    peer: Peer, take: Take, disk: Path, sizes: Sizes, found: table.Table
) -> None:
    """Take figures of one peer; one that fails or takes too long says so."""
    print(f"{peer.name}: {take.__name__}", file=sys.stderr, flush=True)
    try:
        # What a peer was killed over may still come: it goes with the disk.
        with tempfile.TemporaryDirectory(dir=disk, ignore_cleanup_errors=True) as where:
            for figure, value in take(peer, Path(where), sizes):
                found.put(peer.name, figure, value)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a loop iteration
        found.trouble(peer.name, f"{take.__name__}: {told(error)}")


def told(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


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
