"""What fifty idle queues cost: CPU of one core and memory, all processes of RQ together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench

from rq.layout import Root
from rq.rpc import client

QUEUES = int(os.environ.get("RQ_BENCH_QUEUES", "50"))
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
    while not up(root):
        time.sleep(0.1)
    print(f"{QUEUES} queues up after {time.monotonic() - begun:.1f} s", flush=True)
    time.sleep(5)
    all_of_them = processes(pid)
    before = sum(map(ticks, all_of_them))
    time.sleep(SECONDS)
    used = sum(map(ticks, all_of_them)) - before
    share = used / os.sysconf("SC_CLK_TCK") / SECONDS * 100
    print(f"idle: {share:.2f} % of one core over {SECONDS:.0f} s, goal 1 %")
    sizes = {one: pss(one) for one in all_of_them}
    total = sum(sizes.values()) / 1024
    print(f"memory: {total:.0f} MiB PSS in {len(sizes)} processes, goal 300 MiB")


def up(root: Root) -> bool:
    try:
        facts = client.ask(root.supervisor_socket, "status")
    except client.Unreachable:
        return False
    facts = facts[1] if isinstance(facts, list) else facts
    states = [one["state"] for one in facts["children"] if one["kind"] == "queue"]
    return states.count("UP") >= QUEUES


if __name__ == "__main__":
    main()
