"""The index over a million messages, and what it costs the owner of a queue.

    python index.py [build] [follow] [owner]     (all of them, if none is named)

build: the journals of RQ_BENCH_INDEX messages with words, 150 bytes each, are made and read
from nothing; then questions. follow: a queue ends 500 messages a second, and how far the index is behind
is seen from outside. owner: messages are accepted and run with the index and without it,
by turns.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bench
from harness.filled import WAYS, WORDS
from harness.journal_files import JournalFiles, life
from harness.spool import Owner

from rq.index import schema, word
from rq.index.questions import Index
from rq.index.rows import RunsQuestion, SearchQuestion
from rq.layout import Root
from rq.words.states import Event, Role

TOTAL = int(os.environ.get("RQ_BENCH_INDEX", "1000000"))
QUEUES = 20
SEGMENT = 10_000  # messages of a sealed segment
FAILED = 0.003  # of all
PER_SECOND, SECONDS = 500, 10
TURNS = int(os.environ.get("RQ_BENCH_TURNS", "6"))  # runs with and without the index …
CROWD = 4000  # … and messages of each


@dataclass(frozen=True)
class Goal:
    """A figure, and the most that it may be."""

    most: float
    unit: str

    def show(self, name: str, value: float) -> None:
        met = "met" if value <= self.most else "MISSED"
        print(
            f"  {name:48}{value:10,.2f} {self.unit:4} goal ≤ {self.most:g}: {met}",
            flush=True,
        )


BUILD, BYTES, MEMORY = Goal(240, "s"), Goal(1228, "B"), Goal(80, "MiB")
PAGE, LIST, BEHIND = Goal(150, "ms"), Goal(50, "ms"), Goal(1, "s")
SLOWER = Goal(3, "%")


# ---- a million messages


def journals(root: Root) -> None:
    """Write the journals of all messages, over a day."""
    rule, begun = random.Random(1), (time.time() - 86400) * 1e6
    share = TOTAL // QUEUES
    for number in range(QUEUES):
        name = f"{WORDS[number % len(WORDS)]}-{number:02d}"
        files = JournalFiles(root, name, f"{number:08x}")
        files.queue.config.write_text('{"script": "x"}')
        for first in range(0, share, SEGMENT):
            numbers = range(first, min(share, first + SEGMENT))
            files.seal(
                line
                for at in numbers
                for line in _life(rule, int(begun + at * 86400e6 / share), number, at)
            )


def _life(
    rule: random.Random, ts: int, queue: int, at: int
) -> Iterator[dict[str, object]]:
    msg_id = f"20260102.0304.05.006.{1_700_000_000_000 + queue * 10**7 + at}"
    fails = rule.random() < FAILED
    cause, text = rule.choice(WAYS) if fails else ("done", "ok")
    said = text.format(
        n=rule.randrange(10**6), s=rule.randrange(99), w=rule.choice(WORDS)
    )
    words = " ".join(rule.choices(WORDS, k=8))
    end = "fail" if fails else "finish"
    for line in life(msg_id, ts, end=end, cause=cause, run_us=rule.randrange(10**7)):
        if line["ev"] == "commit":
            param = f"order-{rule.randrange(10**6)} {rule.getrandbits(160):x}"
            line["message"] = {"msg_id": msg_id, "param1": param, "param2": words}
        elif line["ev"] == end:
            line["text"] = said
        yield line


def build(disk: bench.Disk) -> None:
    root = bench.make_root(disk.path)
    shutil.rmtree(root.queue("q").path)
    journals(root)
    begun = time.perf_counter()
    with process(root) as child:
        peak = 0.0
        while not _is_built(root):
            peak = max(peak, _peak(child.pid))
            time.sleep(0.2)
        took = time.perf_counter() - begun
    held = schema.place(root).stat().st_size
    print(f"\n{TOTAL:,} messages, {QUEUES} queues; {disk.name}")
    BUILD.show("made from nothing", took)
    BYTES.show("bytes of a message", held / TOTAL)
    MEMORY.show("memory of the process", peak)
    with Index.at(root) as index:
        for name, goal, ask in questions(index):
            goal.show(name, _milliseconds(ask))
    shutil.rmtree(root.path)


def _is_built(root: Root) -> bool:
    try:
        with Index.at(root) as index:
            return not index.freshness().is_building
    except Exception:  # noqa: BLE001 (it is not there yet)
        return False


def _peak(pid: int) -> float:
    """Return the MiB that a process has held at most."""
    for text in Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith("VmHWM:"):
            return int(text.split()[1]) / 1024
    return 0.0


Asked = tuple[str, Goal, Callable[[], object]]


def questions(index: Index) -> list[Asked]:
    now = time.time()

    def search(*words: str, **more: object) -> Callable[[], object]:
        question = SearchQuestion(words=words, **more)  # type: ignore[arg-type]
        return lambda: index.search(question, None)

    night = RunsQuestion(since=now - 3 * 3600)
    ended = RunsQuestion(since=now - 3 * 3600, order="ended")
    day = RunsQuestion(since=now - 86400)
    failed = RunsQuestion(since=now - 86400, is_failed=True)
    return [
        ("search, a word of all, newest first", PAGE, search("order")),
        ("search, a rare word", PAGE, search("order-13992")),
        ("search, two words, newest first", PAGE, search("order-77", "letter")),
        ("search, a word of what was said", PAGE, search("refused")),
        (
            "search by another order, 10,000 hits",
            Goal(1000, "ms"),
            search("order", order="changed"),
        ),
        ("failures by group", LIST, lambda: index.failures(None, None)),
        ("runs of 3 hours and their sums", LIST, lambda: index.runs(night, None)),
        ("the same, that ended last", LIST, lambda: index.runs(ended, None)),
        ("runs of a day and their sums", LIST, lambda: index.runs(day, None)),
        ("failed runs of a day", LIST, lambda: index.runs(failed, None)),
        ("durations of a queue", LIST, lambda: index.durations("invoice-00", 0)),
        ("hours of a day, all queues", LIST, lambda: index.hours(None, 0, now)),
    ]


def _milliseconds(ask: Callable[[], object]) -> float:
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        ask()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1000


@contextlib.contextmanager
def process(root: Root) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process of the index until the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-m", "rq.index", "--root", str(root.path)],
        env={**os.environ, "PYTHONPATH": str(bench.REPOSITORY)},
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


# ---- how far it is behind


def follow(disk: bench.Disk) -> None:
    """Let a queue end messages, and see when the index has read of that."""
    root = bench.make_root(disk.path)
    owner = Owner(root.path, clock=time.time)
    owner.open()
    behind = []
    with process(root), word._opened() as sock:
        while not _is_built(root):
            time.sleep(0.1)
        begun = said = time.time()
        for number in range(PER_SECOND * SECONDS // 10):
            ended = _end_some(owner, 10)
            if time.time() - said >= word.PAUSE:
                said = time.time()
                data = word._encoded("q", owner.spool.durable)
                word.send(root.index_socket, data, sock)
                with Index.at(root) as index:
                    rows = index.search(SearchQuestion(limit=1), None).rows
                if rows:
                    behind.append(ended - rows[0].accepted)
            time.sleep(max(0.0, begun + (number + 1) * 10 / PER_SECOND - time.time()))
    owner.crash()
    print(f"\n{PER_SECOND} ends a second")
    BEHIND.show(
        "behind, as the next word is said (p95)", statistics.quantiles(behind, n=20)[-1]
    )
    shutil.rmtree(root.path)


def _end_some(owner: Owner, number: int) -> float:
    """Let messages be accepted, run and end; return when that was durable."""
    ids = [owner.submit(param1=f"order-{at}") for at in range(number)]
    for msg_id in ids:
        owner.spool.fire(msg_id, Event.CLAIM, Role.QUEUE, slot=0)
        owner.end(msg_id)
    owner.spool.commit()
    owner.spool.settle_some(0.005)
    return time.time()


# ---- what it costs an owner


@dataclass(frozen=True)
class Leg:
    """What a run of messages took."""

    rate: float  # messages a second
    owner: float  # µs of processor a message: other people's work shows little in it


LEGS = (("accept, 16 clients", True), ("accept and run", False))


def cost(disk: bench.Disk) -> None:
    """Accept messages, and run them, with the index and without it, by turns.

    What a run leaves is not removed before all have ended: ext4 gives no inode away again
    for some minutes, looks at each one that it passes over, and makes whoever comes next
    eight times as slow."""
    legs: dict[tuple[str, bool], list[Leg]] = {}
    for turn in range(2 * TURNS):
        with_index = turn % 4 in (0, 3)
        for name, paused in LEGS:
            leg = _leg(disk, with_index, paused)
            legs.setdefault((name, with_index), []).append(leg)
    print(f"\nan owner, {TURNS} runs with the index and {TURNS} without it, by turns")
    for name, _ in LEGS:
        without, with_it = (legs[name, had] for had in (False, True))
        _compare(
            f"{name}, /s", [leg.rate for leg in without], [leg.rate for leg in with_it]
        )
        _compare(
            f"{name}, µs of the owner",
            [leg.owner for leg in without],
            [leg.owner for leg in with_it],
            is_time=True,
        )


def _compare(
    name: str, without: list[float], with_it: list[float], is_time: bool = False
) -> None:
    before, after = statistics.median(without), statistics.median(with_it)
    spread = ", ".join(
        f"{min(values):,.0f} to {max(values):,.0f}" for values in (without, with_it)
    )
    print(f"  {name}: {before:,.0f} without, {after:,.0f} with it ({spread})")
    share = after / before
    SLOWER.show(f"{name}: slower by", 100 * (share - 1 if is_time else 1 - share))


def _leg(disk: bench.Disk, with_index: bool, paused: bool) -> Leg:
    root = bench.make_root(
        disk.path,
        paused=paused,
        worker="persistent" if not paused else "once",
        script=WORKER,
    )
    with contextlib.ExitStack() as stack:
        if with_index:
            stack.enter_context(process(root))
            while not _is_built(root):
                time.sleep(0.1)
        owner = stack.enter_context(bench.process(root, "q"))
        socket = root.queue("q").socket
        os.sync()
        begun, used = time.perf_counter(), _processor(owner.pid)
        bench.crowd(socket, 16, CROWD)
        while not paused and _waiting(socket):
            time.sleep(0.01)
        rate = CROWD / (time.perf_counter() - begun)
        return Leg(rate, (_processor(owner.pid) - used) / CROWD)


def _processor(pid: int) -> float:
    """Return the µs of processor that a process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


WORKER = """#!/bin/sh
echo ready >&3
while read -r line <&4; do printf 'done\\nready\\n' >&3; done
"""


def _waiting(socket: Path) -> int:
    counts = bench.client.ask(socket, "num_messages")
    return int(counts["que"]) + int(counts["run"])


PARTS = {"build": build, "follow": follow, "owner": cost}


def main() -> None:
    chosen = sys.argv[1:] or list(PARTS)
    with bench.disks("disk") as disks:
        for name in chosen:
            PARTS[name](disks[0])


if __name__ == "__main__":
    main()
