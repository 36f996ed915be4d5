"""`rq up --demo`: sample messages over four queues, and the chart of what became of them."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

from rq.cli import listing, owner, place, spark, term
from rq.config import files
from rq.errors import Refused, RQError
from rq.layout import Root
from rq.rpc import client

QUEUES = ("demo-fetch", "demo-resize", "demo-mail", "demo-report")
MESSAGES = 5000
PATIENCE = 600.0  # seconds for all to end
_NOTE_EVERY = 3.0  # seconds
_WINDOW = 200  # requests on their way at once
_SETTINGS = {"num_workers": 4, "worker": "persistent", "worker_dir": False}


def show(root: Root, number: int) -> None:
    """Send `number` messages, wait for their ends, make the history, say where it is."""
    from rq.spark.session import demand_spark

    demand_spark()
    _make_queues(root)
    begun = time.monotonic()
    for queue, numbers in _shares(number):
        _send(root, queue, numbers)
    print(f"sent {number} messages to {', '.join(QUEUES)}", flush=True)
    _await_ends(root)
    print(f"all have ended ({time.monotonic() - begun:.1f} s)", flush=True)
    done = spark.run(root)
    counted = spark.counted(done)
    listing.counts_table(counted)
    live = _live_counts(root, counted)
    if all(counted[queue].items() <= live[queue].items() for queue in QUEUES):
        print("the history and `rq ls --count` count the same")
    else:
        print("`rq ls --count` counts more: messages came in meanwhile")
    print(f"`rm {root.scandir}/demo-*` removes the sample queues")
    print(f"the chart: {place.root_config(root).page_url}history?range=day")


def _shares(number: int) -> list[tuple[str, range]]:
    """Give each queue a quarter of the numbers."""
    ends = [number * part // len(QUEUES) for part in range(len(QUEUES) + 1)]
    return [(q, range(a, b)) for q, (a, b) in zip(QUEUES, pairwise(ends), strict=True)]


def _make_queues(root: Root) -> None:
    """Link four definitions into scandir/, and wait until they are queues."""
    for queue in QUEUES:
        directory = root.spark / "demo" / queue
        files.make_dir(directory)
        files.write_state(directory / "config.json", _SETTINGS)
        run = directory / "run"
        files.write_text(run, _script())
        run.chmod(0o755)
        files.write_link(str(directory), root.scandir / queue)
    end = time.monotonic() + PATIENCE
    while not all(_accepts(root, queue) for queue in QUEUES):
        if time.monotonic() > end:
            raise Refused("the sample queues did not start: `rq status` says why")
        time.sleep(0.1)


def _script() -> str:
    return f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rq.spark.demo_worker\n"


def _accepts(root: Root, queue: str) -> bool:
    try:
        return bool(client.ask(root.queue(queue).socket, "status") == ["UP"])
    except RQError:
        return False


def _send(root: Root, queue: str, numbers: Sequence[int]) -> None:
    """Send messages, many on their way at once; each is on disk when this returns."""
    with client.Connection(root.queue(queue).socket) as line:
        for first in range(0, len(numbers), _WINDOW):
            window = numbers[first : first + _WINDOW]
            for number in window:
                fields = {"dest": queue, "param1": str(number), "src": "rq up --demo"}
                line.send("create_message", fields)
            for _ in window:
                client.demanded(line.receive(), f"{queue}: ")


def _await_ends(root: Root) -> None:
    last_note = time.monotonic()
    end = last_note + PATIENCE
    with owner.Reader(root) as reader:
        while True:
            counts = [reader.counts(queue) for queue in QUEUES]
            left = sum(states.get("que", 0) + states.get("run", 0) for states in counts)
            if not left:
                return
            now = time.monotonic()
            if now > end:
                raise Refused(
                    f"{left} sample messages have not ended: `rq ls` lists them"
                )
            if now - last_note > _NOTE_EVERY:
                last_note = now
                term.note(f"{left} sample messages have not ended yet")
            time.sleep(0.1)


def _live_counts(root: Root, queues: Iterable[str]) -> dict[str, dict[str, int]]:
    with owner.Reader(root) as reader:
        return {queue: listing.counts_of(reader, queue) for queue in queues}
