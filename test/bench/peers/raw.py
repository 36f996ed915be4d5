"""The raw machine: what the disk and the kernel give to anybody."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import accept
import bench
import peers
import table


def measure(disk: Path, number: int, found: table.Table) -> None:
    found.begin("xargs -P4", "the same script, no queue: nothing survives a crash")
    found.put("xargs -P4", "cycle, a process per message", xargs(disk, number))
    found.begin("raw machine", "fdatasync loop, growing file; posix_spawn loop")
    found.put("raw machine", "accept, 1 client", accept.raw(disk, False))
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        value = bench.percentile(syncs(disk), share)
        found.put("raw machine", f"accept {name}, 1 client", value)
    rate = spawns(disk, number)
    found.put("raw machine", "cycle, a process per message", rate)


def xargs(disk: Path, number: int) -> float:
    """Return runs a second of the script by GNU xargs."""
    with tempfile.TemporaryDirectory(dir=disk) as name:
        script = peers.script(Path(name))
        begun = time.perf_counter()
        runs = f"seq {number} | xargs -P{peers.WORKERS} -n1 {script}"
        subprocess.run(["sh", "-c", runs], check=True)
        return number / (time.perf_counter() - begun)


def spawns(disk: Path, number: int) -> float:
    """Return starts and ends a second of the script, as many at once as RQ's workers."""
    with tempfile.TemporaryDirectory(dir=disk) as name:
        script = str(peers.script(Path(name)))
        begun, at_work = time.perf_counter(), 0
        for _ in range(number):
            os.posix_spawn(script, [script], os.environ)
            at_work += 1
            if at_work == peers.WORKERS:
                os.wait()
                at_work -= 1
        for _ in range(at_work):
            os.wait()
        return number / (time.perf_counter() - begun)


def syncs(disk: Path, seconds: float = 2.0) -> list[float]:
    """Return the seconds that appends with fdatasync took, one after the other."""
    path, took = disk / "raw", []
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    until = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        os.write(fd, b"x" * 350)
        os.fdatasync(fd)
        took.append(time.perf_counter() - begun)
    os.close(fd)
    path.unlink()
    return took
