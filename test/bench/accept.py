"""How fast messages are accepted, beside the raw append + fdatasync of the same disk."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import bench


def raw(where: Path, zero_filled: bool, seconds: float = 2.0) -> float:
    """Return appends + fdatasync a second of a line of 350 bytes."""
    path = where / "raw"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if zero_filled:
        os.pwrite(fd, bytes(16 * 1024 * 1024), 0)
        os.fsync(fd)
    line, at, number = b"x" * 350, 0, 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        os.pwrite(fd, line, at)
        os.fdatasync(fd)
        at, number = at + 350, number + 1
    os.close(fd)
    path.unlink()
    return number / seconds


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            show(disk)


def show(disk: bench.Disk) -> None:
    print(f"\n{disk.name}")
    growing = raw(disk.path, False)
    print(
        f"  raw growing append + fdatasync    {growing:8.0f}/s {1e6 / growing:6.0f} µs"
    )
    filled = raw(disk.path, True)
    print(f"  raw zero-filled pwrite + fdatasync{filled:8.0f}/s {1e6 / filled:6.0f} µs")
    with bench.queue_at_work(disk.path, paused=True) as path:
        begun = time.perf_counter()
        took = bench.crowd(path, 1, 4000)
        rate = 4000 / (time.perf_counter() - begun)
        report("1 client", rate, took)
        print(
            f"      {rate / growing:.2f} × raw growing, "
            f"{1e6 / rate - 1e6 / growing:.0f} µs over it"
        )
    with bench.queue_at_work(disk.path, paused=True) as path:
        begun = time.perf_counter()
        took = bench.crowd(path, 64, 20_000)
        report(
            "64 clients, burst of 20,000", 20_000 / (time.perf_counter() - begun), took
        )
        more = 20_000
        begun = time.perf_counter()
        seconds = float(os.environ.get("RQ_BENCH_SECONDS", "15"))
        total = 0
        lasting: list[float] = []
        while time.perf_counter() - begun < seconds:
            lasting += bench.crowd(path, 64, more)
            total += more
        with bench.client.Connection(path) as line:
            while line.ask("detail")[1]["lag"]:
                time.sleep(0.01)
        report(
            f"64 clients, {seconds:.0f} s, all folders made",
            total / (time.perf_counter() - begun),
            lasting,
        )


def report(what: str, rate: float, took: list[float]) -> None:
    p50, p99 = bench.percentile(took, 0.5) * 1e3, bench.percentile(took, 0.99) * 1e3
    print(f"  {what:34s}{rate:8.0f}/s  p50 {p50:.2f} ms  p99 {p99:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
