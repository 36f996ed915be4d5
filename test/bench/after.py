"""What it costs that messages wait for others: memory, decisions a second, and how long it
takes from the end of one to the start of the next.

    PYTHONPATH=.:test .venv/bin/python test/bench/after.py [DIRECTORY [PART ...]]
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from harness.queues import RunningQueue, kept, short

MANY = 100_000  # that wait for one
PREDECESSORS = 10_000  # of one
WIDE = 5  # messages with so many
CHAINS = 200
AT_ONCE = 5000
SCRIPT = """#!/bin/sh
date +"$RQ_MSG_ID %s.%N" >> "$RQ_ROOT/times"
echo "done" >&3
"""


def rss(queue: RunningQueue) -> float:
    """Return the memory of a queue's process, in MB."""
    for line in Path(f"/proc/{queue.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit("no VmRSS")


def send(queue: RunningQueue, messages: list[dict[str, object]]) -> list[str]:
    ids: list[str] = []
    for at in range(0, len(messages), AT_ONCE):
        rows = queue.ok("create_messages", {"messages": messages[at : at + AT_ONCE]})
        assert all(row[0] == "ok" for row in rows), rows[:3]
        ids += [short(row[1]) for row in rows]
    return ids


def rest(queue: RunningQueue) -> None:
    """Wait until all folders are made."""
    while queue.ok("figures")["lag"]:
        time.sleep(0.2)


def memory(queue: RunningQueue, other: RunningQueue) -> None:
    ids = send(other, [{"dest": "other", "due": 4e9}] * PREDECESSORS * (WIDE + 1))
    rest(other)
    before = 0.0
    for number in range(WIDE + 1):
        if number == 1:  # what the first one leaves free is used by the others
            rest(queue)
            before = rss(queue)
        some = ids[number * PREDECESSORS : (number + 1) * PREDECESSORS]
        queue.ok("create_message", {"dest": "t", "after": [f"other/{i}" for i in some]})
    rest(queue)
    time.sleep(PREDECESSORS * WIDE / 1000 + 2)  # all have been asked for once more
    each = (rss(queue) - before) / WIDE
    print(f"a message with {PREDECESSORS:,} predecessors: {each:.2f} MB while it waits")


def decisions(queue: RunningQueue, other: RunningQueue) -> None:
    first = other.send(due=4e9)
    wanted: dict[str, object] = {"dest": "t", "after": [f"other/{first}"], "due": 4e9}
    begun = time.perf_counter()
    ids = send(queue, [wanted] * MANY)
    seconds = time.perf_counter() - begun
    print(f"accepted with one predecessor: {MANY / seconds:,.0f}/s")
    rest(queue)
    other.ok("run_message", {"msg_id": first})
    other.ended(first)
    begun = time.perf_counter()
    while "after_end" not in queue.get(ids[-1]):
        time.sleep(0.05)
    seconds = time.perf_counter() - begun
    print(f"{MANY:,} that wait for one: {MANY / seconds:,.0f} decided a second")


def latency(queue: RunningQueue, other: RunningQueue) -> None:
    waits: list[float] = []
    for _ in range(CHAINS):
        first = other.send(due=time.time() + 0.05)
        second = queue.send(after=[f"other/{first}"])
        queue.ended(second)
        lines = (queue.root.path / "times").read_text().splitlines()
        times = dict(line.split() for line in lines)
        waits.append(float(times[second]) - float(times[first]))
    waits.sort()
    print(
        f"from the end of one script to the start of the next, over two queues: "
        f"p50 {statistics.median(waits) * 1000:.0f} ms, "
        f"p95 {waits[len(waits) * 95 // 100] * 1000:.0f} ms"
    )


PARTS = {"latency": latency, "memory": memory, "decisions": decisions}


def main(root: Path) -> None:
    with contextlib.ExitStack() as stack:
        make = [("t", 1), ("other", 1)]
        queue, other = (
            stack.enter_context(kept(RunningQueue(root, n, SCRIPT, num_workers=w)))
            for n, w in make
        )
        for part in PARTS if len(sys.argv) < 3 else sys.argv[2:]:
            PARTS[part](queue, other)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else directory) / "root")
