"""What ten thousand parked queues cost, 20 of which stay awake: until RQ is up, memory,
processor, the overview, and the first answer of one that is woken.

`parked.py [QUEUES]`; RQ_BENCH_DIR is where the root is made: in memory, syncs cost nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench
import idle

from rq.config import parked
from rq.layout import Root
from rq.rpc import client
from rq.scandir.cache import JsonCache
from rq.scandir.links import read_links
from rq.spool import checkpoint, open_spool

QUEUES = int(sys.argv[1]) if sys.argv[1:] else 10_000
AWAKE = 20
PORT = 3979
TEMPLATE = "q0"


def main() -> None:
    with tempfile.TemporaryDirectory(dir=os.environ.get("RQ_BENCH_DIR")) as where:
        root = make_root(Path(where))
        with_supervisor(root, lambda _: until_parked(root, 1))
        multiply(root)
        with_supervisor(root, lambda pid: measure(root, pid))


def make_root(where: Path) -> Root:
    """Make a root with one queue, which is parked as any other."""
    root = Root(where)
    root.config_dir.mkdir()
    root.scandir.mkdir()
    for name, settings in {"parks": {"park": "1s"}, "stays": {"park": "never"}}.items():
        definition = root.path / name
        definition.mkdir()
        (definition / "run").write_text(bench.SCRIPT)
        (definition / "run").chmod(0o755)
        (definition / "config.json").write_text(json.dumps(settings))
    main_config = {"env": "bench", "host": "127.0.0.1", "port": PORT, "web": True}
    root.config.write_text(json.dumps(main_config))
    (root.scandir / TEMPLATE).symlink_to(root.path / "parks")
    return root


def with_supervisor(root: Root, act: Any) -> None:
    command = [sys.executable, "-m", "rq.supervisor", "--root", str(root.path)]
    process = subprocess.Popen([*command, "--foreground"], cwd=bench.REPOSITORY)
    try:
        act(process.pid)
    finally:
        process.terminate()
        process.wait()


def states(root: Root) -> list[str]:
    try:
        facts = client.ask(root.supervisor_socket, "status")
    except client.Unreachable:
        return []
    facts = facts[1] if isinstance(facts, list) else facts
    return [each["state"] for each in facts["children"] if each["kind"] == "queue"]


def until_parked(root: Root, number: int) -> None:
    while states(root).count("PARKED") < number:
        time.sleep(0.1)


def multiply(root: Root) -> None:
    """Make the others as they would be if RQ had parked each, and was stopped."""
    model = parked.read(root.queue(TEMPLATE))
    assert model is not None
    for number in range(1, QUEUES + AWAKE):
        definition = "stays" if number >= QUEUES else "parks"
        (root.scandir / f"q{number}").symlink_to(root.path / definition)
    definitions = read_links(root, JsonCache(), {}).definitions
    with ThreadPoolExecutor(2) as threads:
        for name, definition in definitions.items():
            if name != TEMPLATE:
                make_queue(root, definition, threads, model)


def make_queue(
    root: Root, definition: Any, threads: ThreadPoolExecutor, model: parked.Parked
) -> None:
    queue = root.queue(definition.name)
    queue.path.mkdir()
    queue.config.write_text(json.dumps(definition.config))
    mark = {"owner": "scandir", "link": definition.link}
    queue.scandir_mark.write_text(json.dumps(mark))
    opened = open_spool(queue, threads=threads)
    checkpoint.park(opened.spool, is_as_found=False)
    os.close(opened.lock)
    opened.spool.close()
    if definition.directory.name == "parks":
        journal, seq = opened.spool.journal_id, opened.spool.last_seq
        stamps = parked.stamps(root, queue.name)
        parked.write(
            queue,
            replace(model, journal=journal, seq=seq, stamps=stamps, wakes_at=None),
        )


def measure(root: Root, pid: int) -> None:
    began = time.monotonic()
    until_parked(root, QUEUES)
    print(
        f"{QUEUES} queues are parked {time.monotonic() - began:.1f} s after the start"
    )
    while states(root).count("UP") < AWAKE:
        time.sleep(0.1)
    time.sleep(70)  # the first looks at all are over
    show_rest(pid)
    for path in ("/", "/", "/?find=q77", "/metrics"):
        print(f"{path}: {seconds_of(path) * 1000:.0f} ms, goal of / 500")
    idle.QUEUES = QUEUES
    idle.wake_some(root)


def show_rest(pid: int) -> None:
    every = idle.processes(pid)
    before = {each: idle.ticks(each) for each in every}
    time.sleep(idle.SECONDS * 4)
    spent = {each: idle.ticks(each) - before[each] for each in every}
    for each in sorted(every, key=spent.__getitem__, reverse=True)[:7]:
        title = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ")[:60]
        print(
            f"  {share(spent[each]):.2f} %  {idle.pss(each) / 1024:.0f} MiB  {title!r}"
        )
    print(f"idle: {share(sum(spent.values())):.2f} % of a core, goal 1")
    total = sum(map(idle.pss, every)) / 1024
    print(f"memory: {total:.0f} MiB PSS in {len(every)} processes, goal 300")


def share(ticks: int) -> float:
    return ticks / os.sysconf("SC_CLK_TCK") / (idle.SECONDS * 4) * 100


def seconds_of(path: str) -> float:
    began = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60) as answer:
        answer.read()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
