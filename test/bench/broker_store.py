"""What a broker's jobs cost: memory, the pauses of a snapshot, and a start, by how many
there are.

    PYTHONPATH=.:test .venv/bin/python test/bench/broker_store.py [NUMBER …]
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.broker_store import KeptNode

NUMBERS = (1_000, 100_000, 1_000_000)
BODY = b"b" * 200
GROUP = 1000


def memory() -> int:
    """Return the bytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def fill(kept: KeptNode, number: int) -> float:
    """Add jobs; return how many a second."""
    began = time.monotonic()
    for at in range(number):
        kept.add(b"%d " % at + BODY)
        if at % GROUP == GROUP - 1:
            kept.commit()
    kept.commit()
    return number / (time.monotonic() - began)


def pauses(kept: KeptNode) -> tuple[float, float]:
    """Write a snapshot; return its longest slice, and how long it took, in seconds."""
    before, longest, began = kept.store.snapshots, 0.0, time.monotonic()
    kept.store._compaction._bytes = -(10**12)
    while kept.store.snapshots == before:
        slice_began = time.monotonic()
        kept.store.mind_snapshot(kept.node)
        longest = max(longest, time.monotonic() - slice_began)
        time.sleep(0)
    return longest, time.monotonic() - began


def measured(number: int, path: Path) -> None:
    """Print the figures of one number of jobs."""
    kept = KeptNode(path)
    gc.set_threshold(10_000, 10, 2**30)  # as the process does
    empty = memory()
    kept.open()
    rate = fill(kept, number)
    gc.collect()
    each = (memory() - empty) / number
    longest, whole = pauses(kept)
    kept.crash()
    began = time.monotonic()
    subprocess.run([sys.executable, __file__, "start", path], check=True)
    print(
        f"{number:>9,} jobs: {rate:8,.0f} added/s, {each:6.0f} bytes a job with its "
        f"{len(BODY)}, snapshot {whole:5.1f} s with pauses of {longest * 1000:4.0f} ms; "
        f"process with snapshot read {time.monotonic() - began:5.1f} s"
    )


def started(path: Path) -> None:
    """Print what a start takes."""
    kept = KeptNode(path)
    began = time.monotonic()
    gc.disable()
    kept.open()
    took = time.monotonic() - began
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    now = memory() / 1024 / 1024
    number = len(kept.node.jobs.by_id)
    print(
        f"{number:>9,} read in {took:5.1f} s, {now:4.0f} MiB, at most {peak:4.0f} MiB"
    )
    kept.crash()


def main(words: list[str]) -> None:
    if words[:1] == ["start"]:
        started(Path(words[1]))
        return
    for number in map(int, words or NUMBERS):
        with tempfile.TemporaryDirectory(dir=".") as place:
            process = [sys.executable, __file__, "fill", place, str(number)]
            subprocess.run(process, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["fill"]:
        measured(int(sys.argv[3]), Path(sys.argv[2]) / "node")
    else:
        main(sys.argv[1:])
