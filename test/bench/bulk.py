"""How fast many messages are accepted by one request, beside the raw disk.

The processor time of each process is told, too: it holds on a busy machine as well.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from pathlib import Path

import bench
import rest

TOTAL = int(os.environ.get("RQ_BENCH_MESSAGES", "8000"))
GROUP = 1000  # lines that share a sync
TICKS = os.sysconf("SC_CLK_TCK")
LINE = json.dumps({"src": "bench", "param1": "x" * 100}).encode() + b"\n"


def raw(where: Path) -> float:
    """Return lines a second of 400 bytes that are written, GROUP by GROUP, and synced."""
    fd = os.open(where / "raw", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.pwrite(fd, bytes(400 * TOTAL), 0)
    os.fsync(fd)
    begun = time.perf_counter()
    for at in range(0, TOTAL, GROUP):
        os.pwrite(fd, b"x" * 400 * GROUP, at * 400)
        os.fdatasync(fd)
    rate = TOTAL / (time.perf_counter() - begun)
    os.close(fd)
    (where / "raw").unlink()
    return rate


def cpu(pids: list[int]) -> float:
    """Return the processor time of processes, in seconds."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2] for pid in pids]
    return sum(int(n) for text in fields for n in text.split()[11:13]) / TICKS


def children(pid: int) -> list[int]:
    """Return the processes that have this one as their parent."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


def send(port: int, lines: int) -> None:
    """Send lines by one request; none may be refused."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    kind = {"Content-Type": "application/x-ndjson"}
    line.request("POST", "/api/v1/queues/q/messages/bulk", LINE * lines, kind)
    answer = line.getresponse().read()
    line.close()
    if answer.count(b'"msg_id"') != lines:
        raise SystemExit(f"refused: {answer[:500]!r}")


def show(where: Path, size: int) -> None:
    """Send TOTAL lines to a new queue, so that no folders of others wait to be made."""
    root = bench.make_root(where, paused=True)
    with bench.process(root, "q") as owner, rest.web(root) as port:
        web = [pid for pid in children(os.getpid()) if pid != owner.pid]
        web += [child for pid in web for child in children(pid)]
        send(port, 100)
        before = cpu([owner.pid]), cpu(web)
        begun = time.perf_counter()
        for _ in range(0, TOTAL, size):
            send(port, size)
        rate = TOTAL / (time.perf_counter() - begun)
        spent = cpu([owner.pid]) - before[0], cpu(web) - before[1]
    owners, webs = (f"{seconds / TOTAL * 1e6:.0f} µs" for seconds in spent)
    print(
        f"  {size:6} lines a request {rate:10.0f}/s   processor time of each: {owners} "
        f"of the owner, {webs} of the web",
        flush=True,
    )


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            print(f"  raw, {GROUP} lines a sync {raw(disk.path):9.0f}/s")
            for size in (100, 1000, 8000):
                show(disk.path, size)


if __name__ == "__main__":
    main()
