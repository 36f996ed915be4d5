"""Accept → batch → done: many messages cost one process; beside one process for each."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import bench

from rq.rpc import client

MESSAGES = int(os.environ.get("RQ_BENCH_MESSAGES", "10000"))
ALL = "#!/bin/sh\necho done >&3\n"
# Says of each message how it ended, as a script does that goes through them.
EACH = r"""#!/bin/sh
sed -n 's/^{"msg_id":"\([^"]*\)".*/msg \1 done/p' "$RQ_BATCH_FILE" >&3
echo done >&3
"""


def backlog(where: Path, script: str, most: int, workers: int = 2) -> float:
    """Return messages a second of a queue that is resumed with all of them waiting."""
    more = {"batch": {"max": most, "wait": 0}} if most else {}
    at_work = bench.queue_at_work(
        where, script=script, paused=True, workers=workers, **more
    )
    total = MESSAGES if most else MESSAGES // 10
    with at_work as path:
        bench.crowd(path, 64, total)
        _settled(path)
        begun = time.perf_counter()
        (path.parents[2] / "config/q.pause").unlink()
        client.ask(path, "wake")
        bench.drained(path, total)
        return total / (time.perf_counter() - begun)


def _settled(path: Path) -> None:
    """Wait until every folder lies where its message is."""
    with client.Connection(path) as line:
        while line.ask("detail")[1]["lag"]:
            time.sleep(0.02)


def main() -> None:
    with bench.disks(sys.argv[1] if len(sys.argv) > 1 else None) as found:
        for disk in found:
            print(disk.name)
            alone = backlog(disk.path, ALL, 0)
            print(f"  a process for each, 2 side by side   {alone:8,.0f}/s")
            for most in (10, 100, 500):
                rate = backlog(disk.path, ALL, most)
                print(f"  batches of {most:>3}, one word for all     {rate:8,.0f}/s")
            rate = backlog(disk.path, EACH, 500)
            print(f"  batches of 500, a word for each      {rate:8,.0f}/s")


if __name__ == "__main__":
    main()
