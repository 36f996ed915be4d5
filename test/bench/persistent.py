"""Accept → long-lived worker → done, beside the raw machine: fdatasync in a loop."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import accept
import bench

from rq.rpc import client

MESSAGES = int(os.environ.get("RQ_BENCH_MESSAGES", "10000"))
WORKER = f"""#!{sys.executable} -I
import os, sys
sys.path.insert(0, os.environ["RQ_SHARE"])
import rq_worker
for message in rq_worker.messages():
    message.done(message.param1)
"""


def cycle(where: Path, clients: int, workers: int, light: bool) -> tuple[float, float]:
    """Return messages a second from the first request until all have ended, durably,
    and until all folders lie where they belong too."""
    settings = {"worker": "persistent", "worker_dir": not light, "workers": workers}
    with bench.queue_at_work(where, script=WORKER, **settings) as path:
        bench.crowd(path, 1, 20)
        bench.drained(path, 20)
        begun = time.perf_counter()
        bench.crowd(path, clients, MESSAGES)
        bench.drained(path, MESSAGES + 20)
        ended = time.perf_counter()
        settled(path)
        whole = time.perf_counter()
        return MESSAGES / (ended - begun), MESSAGES / (whole - begun)


def backlog(where: Path, workers: int) -> float:
    """Return messages a second of a queue that is resumed with all of them waiting."""
    settings = {"worker": "persistent", "worker_dir": False, "workers": workers}
    with bench.queue_at_work(where, script=WORKER, paused=True, **settings) as path:
        bench.crowd(path, 64, MESSAGES)
        settled(path)
        root = path.parents[2]
        begun = time.perf_counter()
        (root / "config/q.pause").unlink()
        client.ask(path, "wake")
        bench.drained(path, MESSAGES)
        return MESSAGES / (time.perf_counter() - begun)


def settled(path: Path) -> None:
    """Wait until every folder lies where its message is."""
    with client.Connection(path) as line:
        while line.ask("detail")[1]["lag"]:
            time.sleep(0.02)


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}, {MESSAGES} messages")
            for filled in (False, True):
                rate = accept.raw(disk.path, filled, 1.0)
                how = "zero-filled" if filled else "growing"
                print(f"  raw append + fdatasync, {how:11}  {rate:7.0f}/s", flush=True)
            for workers in (1, 4):
                rate = backlog(disk.path, workers)
                print(f"  backlog → done, {workers} workers  {rate:7.0f}/s", flush=True)
            for workers in (1, 2, 4):
                for light in (True, False):
                    done, whole = cycle(disk.path, 16, workers, light)
                    how = "without" if light else "with"
                    print(
                        f"  accept → worker → done, {workers} workers, {how} directories"
                        f"  {done:7.0f}/s, all folders made {whole:7.0f}/s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
