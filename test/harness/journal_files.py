"""Sealed segments for tests, as an owner writes them, and what plain Python reads in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

from rq.journal import line
from rq.journal.segment_file import segment_name
from rq.layout import Root

DAY = 86400 * 10**6  # µs
START = 1_800_000_000 * 10**6 // DAY * DAY  # 2027-01-15, 00:00 UTC


class JournalFiles:
    """The journal of a queue, written as sealed segments."""

    def __init__(self, root: Root, queue: str, journal: str) -> None:
        self.queue = root.queue(queue)
        self.journal = journal
        self.path = self.queue.history / journal
        self.path.mkdir(parents=True, exist_ok=True)
        self.last = 0

    def seal(self, events: Iterable[Mapping[str, Any]]) -> Path:
        """Write the events as the next segment."""
        first = self.last + 1
        data = self.segment(events)
        path = self.path / f"{segment_name(first)}-{self.last:016d}.jsonl"
        new = self.queue.path / f"{path.name}.new"  # no reader finds half of it
        new.write_bytes(data)
        return new.rename(path)

    def segment(self, events: Iterable[Mapping[str, Any]]) -> bytes:
        """Return the bytes of a segment that holds these events."""
        name = segment_name(self.last + 1)
        seed = line.seed(self.journal, name)
        events = iter(events)
        begun = list(islice(events, 1))
        moment = begun[0]["ts"] if begun else START
        head = {"g": 0, "ev": "open", "journal": self.journal, "segment": name}
        head |= {"start": 1, "boot": "b", "ts": moment, "queue": self.queue.name}
        lines = [line.sealed(line.body({**head, "prev": [None, 0, self.last]}), seed)]
        for event in chain(begun, events):
            self.last += 1
            record = {"g": 1, "seq": self.last, "queue": self.queue.name, **event}
            lines.append(line.sealed(line.body(record), seed))
        return b"".join(lines)


def life(
    msg: str,
    ts: int,
    *,
    end: str = "finish",
    cause: str = "done",
    wait_us: int = 1000,
    run_us: int = 5000,
    **more: Any,
) -> Iterator[dict[str, Any]]:
    """Give the events of a message that is accepted, runs once and ends."""
    state = {"finish": "done", "relay": "relayed", "fail": "err"}.get(end, "que")
    about = {"msg": msg, "count": 0}
    yield {
        "ts": ts,
        "ev": "commit",
        "was": "nowhere",
        "state": "que",
        "attempt": 0,
        "due": ts / 1e6,
        "message": {"msg_id": msg, "param1": "a"},
        **about,
    }
    yield {
        "ts": ts + wait_us,
        "ev": "claim",
        "was": "que",
        "state": "run",
        "attempt": 1,
        "slot": 0,
        **about,
    }
    yield {
        "ts": ts + wait_us + run_us,
        "ev": end,
        "was": "run",
        "state": state,
        "attempt": 1,
        "cause": cause,
        "outcome": state,
        "text": "ok",
        "exit": 0,
        "wait_us": wait_us,
        "run_us": run_us,
        "cpu_us": 1,
        "max_rss": 1,
        "created_us": ts,
        **about,
        **more,
    }


def lines(root: Root) -> Iterator[dict[str, Any]]:
    """Give every event in sealed segments, as plain JSON with its journal."""
    for path in sorted(root.queues.glob("*/history/*/*.jsonl")):
        for text in path.read_text().splitlines()[1:]:
            yield {"journal": path.parent.name, **json.loads(text)}
