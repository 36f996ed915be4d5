"""Scripts of no work in the slots of an agent, beside those of the queue itself.

.venv/bin/python test/bench/work.py [MESSAGES] [ROUNDS]

Goal: an agent ends 62 % of what local slots do (500 messages/s where these give 800), and
2,000/s with long-lived workers. Both run in turns, so that what else the machine does is
the same for both. The processor time of each process a message does not depend on that.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent), str(HERE)]

import bench  # noqa: E402 - the path above leads to them
import persistent  # noqa: E402
import rest  # noqa: E402

from rq.layout import Root  # noqa: E402
from rq.rpc import client  # noqa: E402

SLOTS = 4
LOOK = 0.01  # seconds between looks
SETTINGS = {"worker_dir": False}
KINDS = {
    "a process each": (bench.SCRIPT, {}, 1),
    "long-lived": (persistent.WORKER, {"worker": "persistent", **SETTINGS}, 4),
}
TICKS = os.sysconf("SC_CLK_TCK") / 1000


@dataclass(frozen=True)
class Run:
    """What was measured of one run."""

    rate: float  # messages a second, from the first that has ended to the last
    cpu: dict[str, float]  # milliseconds a message, by process


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    for kind, (script, config, more) in KINDS.items():
        runs: dict[str, list[Run]] = {"local": [], "agent": []}
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="rq-bench-work-") as scratch:
                number = messages * more
                here = local(Path(scratch), script, config, number)
                runs["local"].append(here)
                runs["agent"].append(there(Path(scratch), script, config, number))
        show(kind, runs)


def show(kind: str, runs: dict[str, list[Run]]) -> None:
    pairs = zip(runs["agent"], runs["local"], strict=True)
    ratio = statistics.median(far.rate / near.rate for far, near in pairs)
    print(f"{kind}, {SLOTS} slots: the agent ends {ratio:.0%} of what local slots do")
    for name, measured in runs.items():
        rate = statistics.median(run.rate for run in measured)
        parts = [
            f"{part} {statistics.median(run.cpu[part] for run in measured):.2f}"
            for part in measured[0].cpu
        ]
        whole = statistics.median(sum(run.cpu.values()) for run in measured)
        print(f"  {name:6}{rate:8.0f}/s   CPU ms a message: {', '.join(parts)}", end="")
        print(f", together {whole:.2f}", flush=True)


def local(where: Path, script: str, config: dict[str, object], messages: int) -> Run:
    root = bench.make_root(where, script=script, workers=SLOTS, paused=True, **config)
    with bench.process(root, "q") as owner:
        socket = root.queue("q").socket
        bench.crowd(socket, 8, messages)
        root.pause("q").unlink()
        client.ask(socket, "wake")
        return measured(socket, messages, {"owner": [owner.pid]})


def there(where: Path, script: str, config: dict[str, object], messages: int) -> Run:
    root = bench.make_root(where, script=script, workers=0, pull={})
    with bench.process(root, "q") as owner, rest.web(root) as port:
        socket = root.queue("q").socket
        bench.crowd(socket, 8, messages)
        with agent(root, port, config) as worker:
            pids = {"owner": [owner.pid], "agent": [worker], "web": web_of(root)}
            return measured(socket, messages, pids)


def web_of(root: Root) -> list[int]:
    """Return the processes that serve the web of a root: it is among their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"rq.web" in words and os.fsencode(root.path) in words:
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def agent(root: Root, port: int, config: dict[str, object]) -> Iterator[int]:
    """Let an agent work with the queue's own script until the block ends."""
    script = root.path / "script"
    script.mkdir()
    (script / "run").symlink_to(root.path / "run")
    (script / "config.json").write_text(bench.json.dumps({"nice": 0, **config}))
    words = ["work", f"http://127.0.0.1:{port}/q/q", "--slots", str(SLOTS)]
    words += ["--script", str(script), "--dir", str(root.path / "agent")]
    profile = os.environ.get("RQ_BENCH_AGENT_PROFILE")
    wrapped = ["-m", "cProfile", "-o", profile] if profile else []
    process = subprocess.Popen(
        [sys.executable, *wrapped, "-m", "rq.cli", *words],
        env={**os.environ, "PYTHONPATH": str(bench.REPOSITORY)},
        stderr=subprocess.DEVNULL,
        cwd=bench.REPOSITORY,
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def measured(socket: Path, messages: int, pids: dict[str, list[int]]) -> Run:
    with client.Connection(socket) as line:

        def ended() -> int:
            return int(line.ask("detail")[1]["counts"]["done"])

        while (first := ended()) == 0:
            time.sleep(LOOK)
        begun = time.perf_counter()
        before = spent(pids)
        while (last := ended()) < messages:
            time.sleep(LOOK)
        number = last - first
        rate = number / (time.perf_counter() - begun)
        after = spent(pids)
    return Run(rate, {name: (after[name] - before[name]) / number for name in after})


def spent(pids: dict[str, list[int]]) -> dict[str, float]:
    """Return the processor time of processes, in ms, and that of all their children that
    have ended."""
    total = dict.fromkeys([*pids, "scripts"], 0.0)
    for name, processes in pids.items():
        for pid in processes:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            own, children = map(int, stat[11:13]), map(int, stat[13:15])
            total[name] += sum(own) / TICKS
            total["scripts"] += sum(children) / TICKS
    return total


if __name__ == "__main__":
    main()
