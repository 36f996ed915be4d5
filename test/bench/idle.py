"""What fifty idle queues cost: CPU of one core and memory, all processes of RQ together.

With RQ_BENCH_PARK=1s they are parked first, and some are woken one by one at the end: how
long a client waits for the first answer of each, and for the next. RQ_BENCH_ALONE=1 gives
all of them, as root, the processors before others: as if the machine was quiet.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench

from rq.layout import Root
from rq.rpc import client

QUEUES = int(os.environ.get("RQ_BENCH_QUEUES", "50"))
PARK = os.environ.get("RQ_BENCH_PARK", "")
WOKEN = 100  # queues
ALONE = bool(os.environ.get("RQ_BENCH_ALONE"))
SECONDS = float(os.environ.get("RQ_BENCH_SECONDS", "30"))


def make(where: Path) -> Root:
    root = Root(Path(tempfile.mkdtemp(prefix="idle-", dir=where)))
    root.config_dir.mkdir()
    root.scandir.mkdir()
    main = {"env": "bench", "host": "127.0.0.1", "port": 3333, "web": False}
    root.config.write_text(json.dumps(main))
    definition = root.path / "definition"
    definition.mkdir()
    (definition / "run").write_text(bench.SCRIPT)
    (definition / "run").chmod(0o755)
    if PARK:
        (definition / "config.json").write_text(json.dumps({"park": PARK}))
    for number in range(QUEUES):
        (root.scandir / f"q{number}").symlink_to(definition)
    return root


def processes(pid: int) -> list[int]:
    """Return `pid` and all that descend from it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def pss(pid: int) -> int:
    for text in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if text.startswith("Pss:"):
            return int(text.split()[1])
    return 0


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rq-bench-") as where:
        root = make(Path(where))
        command = [sys.executable, "-m", "rq.supervisor", "--root", str(root.path)]
        supervisor = subprocess.Popen([*command, "--foreground"], cwd=bench.REPOSITORY)
        try:
            show(root, supervisor.pid)
        finally:
            supervisor.terminate()
            supervisor.wait()


def show(root: Root, pid: int) -> None:
    begun = time.monotonic()
    while not all_are(root, "PARKED" if PARK else "UP"):
        time.sleep(0.1)
    print(
        f"{QUEUES} queues {'parked' if PARK else 'up'} after {time.monotonic() - begun:.1f} s",
        flush=True,
    )
    time.sleep(5)
    all_of_them = processes(pid)
    before, switches = sum(map(ticks, all_of_them)), sum(map(wakeups, all_of_them))
    time.sleep(SECONDS)
    used = sum(map(ticks, all_of_them)) - before
    woken = (sum(map(wakeups, all_of_them)) - switches) / SECONDS * 60
    share = used / os.sysconf("SC_CLK_TCK") / SECONDS * 100
    print(f"idle: {share:.2f} % of one core over {SECONDS:.0f} s, goal 1 %")
    print(f"wake-ups: {woken:.0f} a minute")
    sizes = {one: pss(one) for one in all_of_them}
    total = sum(sizes.values()) / 1024
    print(f"memory: {total:.0f} MiB PSS in {len(sizes)} processes, goal 300 MiB")
    if PARK:
        alone([os.getpid(), *all_of_them] if ALONE else [])
        wake_some(root)


def wakeups(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def wake_some(root: Root) -> None:
    """Ask parked queues, one after the other, what only a process answers; again at once."""
    first, second = [], []
    for number in random.Random(1).sample(range(QUEUES), min(WOKEN, QUEUES)):
        for times in (first, second):
            began = time.monotonic()
            with client.Connection(root.queue(f"q{number}").socket) as line:
                line.ask("create_message", {"dest": f"q{number}"})
            times.append(time.monotonic() - began)
        time.sleep(0.1)  # its script ends meanwhile
    print(f"first answer: {_in_ms(first)}, goal 40, 100; when awake: {_in_ms(second)}")


def _in_ms(times: list[float]) -> str:
    times.sort()
    half, most = times[len(times) // 2], times[int(len(times) * 0.99)]
    return f"p50 {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms"


def alone(pids: list[int]) -> None:
    """Let processes, and what they fork, have the processors before all others."""
    for pid in pids:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def all_are(root: Root, state: str) -> bool:
    try:
        facts = client.ask(root.supervisor_socket, "status")
    except client.Unreachable:
        return False
    facts = facts[1] if isinstance(facts, list) else facts
    states = [one["state"] for one in facts["children"] if one["kind"] == "queue"]
    return states.count(state) >= QUEUES


if __name__ == "__main__":
    main()
