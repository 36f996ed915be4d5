"""What a message costs beside 1,000 and beside 100,000 others: one table, in milliseconds
of the clock and of the owner's processor.

All messages are queued once, paused; each row is a restart with other settings, some of
them run, and a pause: `flat.py [disk|loop] [NUMBER ...]`. RQ_BENCH_ROWS names some rows.
A row that is given no figure within its time says so. All takes about eight minutes.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bench
import persistent

from rq.layout import Root
from rq.rpc import client

QUEUED = [1000, 100_000]
ROWS = os.environ.get("RQ_BENCH_ROWS", "").split(",")
PATIENCE = 15.0  # seconds for a row; what has not ended by then counts as it is
ENDING = 60.0  # seconds for those that retention is measured beside
FILL = 200  # requests in flight
AGAIN = "#!/bin/sh\necho resend 86400 >&3\n"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What a message took."""

    clock: float  # seconds
    processor: float  # seconds of the owner

    def __str__(self) -> str:
        if math.isnan(self.clock):
            return "none ended in time"
        return f"{self.clock * 1e3:9.3f} {self.processor * 1e3:9.3f}"


class Queue:
    """A queue with very many messages, and the owner that serves it just now."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.dir = root.queue("q")
        self.socket = self.dir.socket
        self.pid = 0

    @contextmanager
    def owned(self, script: str = bench.SCRIPT, **settings: object) -> Iterator[None]:
        run = self.root.path / "run"
        run.write_text(script)
        known = {"script": str(run), "exec_prefix": "", "nice": 0, "num_workers": 2}
        self.dir.config.write_text(json.dumps({**known, **settings}))
        with bench.process(self.root, "q") as owner:
            self.pid = owner.pid
            yield

    def ask(self, command: str, asked: object = b"") -> object:
        return client.ask(self.socket, command, asked, timeout=120)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = client.ask(self.socket, "num_messages", timeout=120)
        return found

    def processor(self) -> float:
        text = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / _TICKS

    def settled(self) -> None:
        while client.ask(self.socket, "detail", timeout=120)[1]["lag"]:
            time.sleep(0.05)

    def measured(self, act: Callable[[], int]) -> Cost:
        """Return what each of the messages took that `act` says it has done."""
        used, begun = self.processor(), time.perf_counter()
        done = act() or math.nan  # nothing: no figure
        took = time.perf_counter() - begun
        return Cost(took / done, (self.processor() - used) / done)

    def send(self, number: int) -> int:
        with client.Connection(self.socket, timeout=600) as line:
            for at in range(0, number, FILL):
                some = range(at, min(number, at + FILL))
                for one in some:
                    asked = {"dest": "q", "param1": "x", "param2": f"{one}"}
                    line.send("create_message", json.dumps(asked).encode())
                for _ in some:
                    line.receive()
        return number

    def ended(self, number: int, patience: float = PATIENCE) -> int:
        """Let `number` messages end, or as many as there are and do within `patience`."""
        pause = self.root.pause("q")
        before, until = self.gone(), time.monotonic() + patience
        pause.unlink()
        self.ask("wake")
        while (done := self.gone() - before) < number and time.monotonic() < until:
            if not any(self.counts()[state] for state in ("que", "run")):
                break
            time.sleep(0.01)
        pause.touch()
        self.ask("wake")
        return done

    def gone(self) -> int:
        """Return how many attempts have ended: done, or to be made again later."""
        done = self.counts()["done"]
        return done if self.tries is None else self.tries.stat().st_size // 2

    tries: Path | None = None


def send(queue: Queue, number: int) -> Iterator[tuple[str, Cost]]:
    with queue.owned():
        yield "send", queue.measured(lambda: queue.send(number))
        queue.settled()
        yield "list, first page", queue.measured(lambda: many(queue, "list", 50))
        yield "list of run", queue.measured(lambda: many(queue, "list", 50, "run"))
        yield "status", queue.measured(lambda: many(queue, "detail", 50))


def many(queue: Queue, command: str, times: int, state: str = "que") -> int:
    for _ in range(times):
        queue.ask(command, {"state": state, "limit": 20})
    return times


def turns(queue: Queue, number: int) -> Iterator[tuple[str, Cost]]:
    for name, script, settings in (
        ("script", bench.SCRIPT, {}),
        ("worker that stays", persistent.WORKER, {"worker": "persistent"}),
        ("blocking_params, unequal", bench.SCRIPT, {"blocking_params": [2]}),
        ("blocking_params, all equal", bench.SCRIPT, {"blocking_params": [1]}),
        ("batches of 10", bench.SCRIPT, {"batch": {"max": 10, "wait": 0}}),
        ("coalesce_params, unequal", bench.SCRIPT, {"coalesce_params": [2]}),
    ):
        if wanted(name):
            with queue.owned(script, **settings):
                yield name, queue.measured(lambda: queue.ended(number))


def resend(queue: Queue, number: int) -> Iterator[tuple[str, Cost]]:
    queue.tries = queue.root.path / "tries"
    queue.tries.touch()
    script = f"{AGAIN}echo >> {queue.tries}; echo >> {queue.tries}\n"
    with queue.owned(script):
        yield "resend", queue.measured(lambda: queue.ended(number // 4))
        crowd = [subprocess.Popen(["sleep", "600"]) for _ in range(500)]
        try:
            beside = queue.measured(lambda: queue.ended(number // 4))
        finally:
            for one in crowd:
                one.kill()
                one.wait()
        yield "resend beside 500 processes", beside
    queue.tries = None


def start(queue: Queue, number: int) -> Iterator[tuple[str, Cost]]:
    """What a start costs for each message that waits."""
    for name, settings in (
        ("start", {}),
        ("start with coalesce_params", {"coalesce_params": [2]}),
    ):
        if wanted(name):
            with queue.owned(**settings):
                queue.ask("ping")
            begun = time.perf_counter()
            with queue.owned(**settings):
                took = time.perf_counter() - begun
                waiting = queue.counts()["que"] or math.nan
                yield name, Cost(took / waiting, queue.processor() / waiting)


def retention(queue: Queue, number: int) -> Iterator[tuple[str, Cost]]:
    """As many end as do in a while; then it is looked for what is too heavy of them."""
    every = {"max": 1000, "wait": 0}
    with queue.owned(batch=every):
        queue.ended(queue.counts()["que"], ENDING)
        queue.settled()
        size = 10**9
        asked = {"state": "done", "bytes": size, "limit": 100}

        def look() -> int:
            queue.ask("expire", asked)
            return 1

        for minute in queue.dir.path.glob("done/*/*/*"):
            os.utime(minute, (0, 1))  # what changed just now is weighed anew each time
        yield "first look by bytes, all of done", queue.measured(look)
        yield "next look by bytes", queue.measured(look)


ALL = (send, turns, resend, start, retention)


def wanted(name: str) -> bool:
    return ROWS == [""] or any(one in name for one in ROWS)


def measure(where: Path, queued: int) -> dict[str, Cost]:
    """Return all rows beside `queued` messages."""
    root = bench.make_root(where, paused=True)
    queue, found = Queue(root), {}
    with queue.owned():
        queue.send(queued)
        queue.settled()
    number = min(queued // 20, 500)  # of a thousand half are left for the last rows
    for one in ALL:
        for name, cost in one(queue, number):
            found[name] = cost
            print(f"    {queued}: {name}  {cost}", file=sys.stderr, flush=True)
    shutil.rmtree(root.path)
    return found


def table(rows: dict[int, dict[str, Cost]]) -> None:
    head = "".join(f"{f'{n:,} queued':>24}" for n in rows)
    print(f"  {'ms a message: clock, processor':<36}{head}")
    for name in next(iter(rows.values())):
        costs = "".join(f"{one[name]!s:>24}" for one in rows.values() if name in one)
        print(f"  {name:<36}{costs}")


def main() -> None:
    numbers = [int(one) for one in sys.argv[1:] if one.isdecimal()] or QUEUED
    only = next((one for one in sys.argv[1:] if not one.isdecimal()), "disk")
    with bench.disks(only) as found:
        for disk in found:
            print(disk.name)
            table({queued: measure(disk.path, queued) for queued in numbers})


if __name__ == "__main__":
    main()
