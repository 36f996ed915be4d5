"""A million queued messages: how long until dispatch, how much memory, how fast then.

Queued over the control socket of a paused queue (RQ_BENCH_MILLION of them), then the
owner is killed -9, the caches of the kernel are dropped (as root), and it starts again.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path

import bench

from rq.layout import Root
from rq.rpc import client

TOTAL = int(os.environ.get("RQ_BENCH_MILLION", "1000000"))
BATCH = 200


def fill(path: Path, total: int) -> float:
    """Queue `total` messages, pipelined; return them per second, folders included."""
    begun = shown = time.perf_counter()
    with client.Connection(path, timeout=600) as line:
        for done in range(0, total, BATCH):
            for _ in range(BATCH):
                line.send("create_message", b'{"dest":"q","param1":"x"}')
            for _ in range(BATCH):
                line.receive()
            if time.perf_counter() - shown > 5:
                shown = time.perf_counter()
                rate = done / (shown - begun)
                print(f"    {done} queued, {rate:.0f}/s", file=sys.stderr, flush=True)
        while line.ask("detail")[1]["lag"]:
            time.sleep(0.05)
    return total / (time.perf_counter() - begun)


def memory(pid: int) -> int:
    """Return bytes of its own that a process holds."""
    for text in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if text.startswith("Pss:"):
            return int(text.split()[1]) * 1024
    return 0


def drop_caches() -> bool:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def started(root: Root, what: str) -> None:
    """Start the owner and say when it was ready, and what it holds."""
    cold = drop_caches()
    begun = time.perf_counter()
    with bench.process(root, "q") as owner:
        took = time.perf_counter() - begun
        socket = root.queue("q").socket
        waiting = client.ask(socket, "num_messages")["que"]
        each = memory(owner.pid) / max(waiting, 1)
        print(
            f"  ready {what} ({'cold' if cold else 'warm'} cache)  {took:6.1f} s  "
            f"{waiting} waiting, {each:.0f} bytes each",
            flush=True,
        )
        if what == "after kill -9":
            rate(root, socket)


def rate(root: Root, socket: Path) -> None:
    """Say how fast it dispatches with all of them waiting."""
    root.pause("q").unlink()
    client.ask(socket, "wake")
    begun = time.perf_counter()
    bench.drained(socket, 2000)
    print(
        f"  dispatch with all of them waiting   {2000 / (time.perf_counter() - begun):6.0f}/s"
    )
    root.pause("q").touch()


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            root = bench.make_root(disk.path, paused=True)
            with bench.process(root, "q") as owner:
                per_second = fill(root.queue("q").socket, TOTAL)
                print(f"  {TOTAL} queued, folders made          {per_second:6.0f}/s")
                owner.send_signal(signal.SIGKILL)
                owner.wait()
            started(root, "after kill -9")
            started(root, "after a stop")
            shutil.rmtree(root.path)


if __name__ == "__main__":
    main()
