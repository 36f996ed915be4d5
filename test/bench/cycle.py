"""Accept → script → done with a process per message, beside xargs on the same script."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench

MESSAGES = int(os.environ.get("RQ_BENCH_MESSAGES", "3000"))


def xargs(where: Path, parallel: int = 2) -> float:
    """Return runs a second of the script by GNU xargs, its descriptor 3 a pipe."""
    with tempfile.TemporaryDirectory(dir=where) as name:
        script = Path(name, "run")
        script.write_text(bench.SCRIPT)
        script.chmod(0o755)
        begun = time.perf_counter()
        runs = f"seq {MESSAGES} | xargs -P{parallel} -n1 {script} 3>&1 >/dev/null"
        subprocess.run(["sh", "-c", f"{runs} | cat >/dev/null"], check=True)
        return MESSAGES / (time.perf_counter() - begun)


def cycle(where: Path) -> float:
    """Return messages a second that were accepted, run and ended as done."""
    with bench.queue_at_work(where) as path:
        begun = time.perf_counter()
        bench.crowd(path, 8, MESSAGES)
        bench.drained(path, MESSAGES)
        return MESSAGES / (time.perf_counter() - begun)


def started(where: Path, number: int = 200) -> list[float]:
    """Return seconds from a message's acceptance to the script's first instruction,
    on an idle queue."""
    script = '#!/bin/sh\ndate +%s.%N > "$RQ_PARAM1"\necho done >&3\n'
    waits = []
    with bench.queue_at_work(where, script=script) as path:
        for i in range(number):
            stamp = path.parent / f"stamp{i}"
            bench.crowd(path, 1, 1, str(stamp))
            accepted = time.time()
            while not (stamp.exists() and stamp.stat().st_size):
                time.sleep(0.001)
            waits.append(float(stamp.read_text()) - accepted)
            time.sleep(0.02)
    return waits


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            peer = xargs(disk.path)
            print(f"  xargs -P2 of the same script  {peer:7.0f}/s")
            rate = cycle(disk.path)
            print(
                f"  accept → script → done        {rate:7.0f}/s  {rate / peer:.2f} × xargs"
            )
            waits = started(disk.path)
            p50, p99 = (bench.percentile(waits, s) * 1e3 for s in (0.5, 0.99))
            print(
                f"  accepted → first instruction  p50 {p50:.1f} ms  p99 {p99:.1f} ms "
                "(with the start of date)",
                flush=True,
            )


if __name__ == "__main__":
    main()
