"""Talks with a queue, word for word, and what plays them.

`queue {…}` opens a queue with settings, `beside NAME {…}` another one. `> WORD {…}` asks it,
`>NAME WORD {…}` the other; `< …` is the reply. `stop` and
`open` end it and open it again, `rest` lets all folders be made, `until ID STATE` waits for a
message, `bulks` and `rows` for all of those, `paid` until nothing is owed. `silent 70`: so
long the holders of leases say nothing. `journal` shows what it has written, once it has ended, `folders` what lies in the queue's own.

What is another each time has a name: `$1` is the first message that is spoken of, `$t1` the
first token of a lease. A moment is told as seconds after the beginning, in hundreds; how long
something took is N.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.inner_queue import InnerQueue

_TOKEN = r"\d{8}\.\d{4}\.\d\d\.\d{3}\.\d{13,}~\d+~[0-9a-f]{32}"
_ID = r"\d{8}\.\d{4}\.\d\d\.\d{3}\.\d{13,}"
_TOOK = {"pid", "uptime", "wait_us", "run_us", "cpu_us", "max_rss", "oldest_due_age"}
_TOOK |= {
    "waits",
    "host",
    "p50",
    "p95",
    "until",
    "left",
    "base",
    "journal_id",
    "series",
    "crc",
    "lag",
    "lag_bytes",
}
_TURNS = {"g", "end", "seq", "of"}  # which events have shared a sync
_SPREAD = {"wait", "run", "log"}
_HEX = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}|[0-9a-f]{16})\b")
_SPAN = re.compile(r"\b(?:\d+ min )?\d+(?:\.\d+)? (?:µs|ms|s)\b")
_WHEN = re.compile(r"\b20\d\d-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?(?: UTC)?")
_SHOW_PATHS = {"get_message", "get_message_status", "get_attempts"}
_OURS = 5e7  # seconds from the beginning, within which a moment is one of the talk
_USER = pwd.getpwuid(os.getuid()).pw_name
_ME = re.compile(rf'(?<="){_USER}(?=["/])|\b{_USER}(?=/)|(?<=by ){_USER}\b')
_DAY = re.compile(r"\d{8}/\d\d/\d\d/")


class Talk:
    """Plays a talk and writes down how it goes."""

    def __init__(self, opens: Callable[..., InnerQueue]) -> None:
        self._opens = opens
        self._queue: InnerQueue | None = None
        self._others: dict[str, InnerQueue] = {}
        self._begun = time.time()
        self._names: dict[str, str] = {}
        self._counts = {"$": 0, "$t": 0}
        self._read = 0  # events of the journal

    @property
    def queue(self) -> InnerQueue:
        assert self._queue is not None, "a talk begins with `queue`"
        return self._queue

    def played(self, lines: list[str]) -> list[str]:
        """Return a talk as it goes today, its comments as they are."""
        played: list[str] = []
        for line in lines:
            if not line.startswith("<"):
                played.append(line)
                if line and not line.startswith("#"):
                    played += (f"< {said}" for said in self._done(line))
        return played

    def _done(self, line: str) -> Iterator[str]:
        word, _, rest = line.partition(" ")
        rest = self._with_values(rest)
        if word.startswith(">"):
            yield self._asked(self._others.get(word[1:], self.queue), rest)
        elif word == "queue":
            self._queue = self._opens(**json.loads(rest))
        elif word == "beside":
            name, _, settings = rest.partition(" ")
            others = {"name": name, "beside": self.queue, **json.loads(settings)}
            self._others[name] = self._opens(**others)
        elif word == "stop":
            yield str(self.queue.stop())
        elif word in _SHOWN:
            yield from map(self._named, _SHOWN[word](self))
        else:
            _WAITS[word](self.queue, *rest.split())

    def _asked(self, queue: InnerQueue, text: str) -> str:
        command, _, arg = text.partition(" ")
        if command in _SHOW_PATHS:
            _rest(queue)
        return self._named(queue.ask(command, json.loads(arg) if arg else None))

    def _events(self) -> list[Any]:
        lines = [
            json.loads(line)
            for path in sorted(self.queue.dir.history.rglob("*.jsonl"))
            for line in path.read_bytes().splitlines()
        ]
        events = [line for line in lines if line.get("g") and line["seq"] > self._read]
        self._read = max((event["seq"] for event in events), default=self._read)
        # Which of two messages was first is not promised, nor how many leases a note tells of.
        events = [event for event in events if event["ev"] not in ("start", "renew")]
        return sorted(events, key=lambda event: event.get("msg") or event["ev"])

    def _folders(self) -> list[str]:
        path = self.queue.dir.path
        return sorted(
            str(entry.relative_to(path))
            for state in ("prep", "que", "run", "done", "err", "relayed")
            for entry in (path / state).rglob("*")
            if not entry.name.isdigit()
        )

    # ---- names for what is another each time

    def _with_values(self, text: str) -> str:
        values = {name: value for value, name in self._names.items()}
        text = text.replace("ROOT", str(self.queue.root.path)) if self._queue else text
        return re.sub(r"\$t?\d+", lambda found: values.get(found[0], found[0]), text)

    def _named(self, value: Any) -> str:
        text = json.dumps(self._steady(value), ensure_ascii=False)
        text = re.sub(_TOKEN, lambda found: self._name("$t", found[0]), text)
        text = re.sub(_ID, lambda found: self._name("$", found[0]), text)
        text = text.replace(str(self.queue.root.path), "ROOT")
        text = _ME.sub("ME", text)
        text = _HEX.sub("HEX", _DAY.sub("DAY/", text))
        return _SPAN.sub("N", _WHEN.sub("WHEN", text))

    def _name(self, kind: str, value: str) -> str:
        if value not in self._names:
            self._counts[kind] += 1
            self._names[value] = f"{kind}{self._counts[kind]}"
        return self._names[value]

    def _steady(self, value: Any, key: str = "") -> Any:
        if key in _TOOK:
            return "N"
        if isinstance(value, dict):
            kept = {name: inner for name, inner in value.items() if name not in _TURNS}
            return {name: self._steady(inner, name) for name, inner in kept.items()}
        if isinstance(value, list):
            if key in _SPREAD:
                return "N"
            return [self._steady(inner, key) for inner in value]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return value
        for unit in (1, 1e6):
            after = value / unit - self._begun
            if abs(after) < _OURS:
                return f"T+{int((after + 20) // 100 * 100)}"
        return value


# ---- what a line does


def _rest(queue: InnerQueue) -> None:
    """Let all folders be made: an answer tells where they lie."""
    queue.spool.settle_all()


def _until(queue: InnerQueue, msg_id: str, state: str) -> None:
    queue.until(lambda: str(queue.spool.find(msg_id)) == state)


_WAITS: dict[str, Callable[..., None]] = {
    "open": InnerQueue.open,
    "rest": _rest,
    "paid": lambda queue: queue.until(lambda: not queue.spool.owed),
    "silent": lambda queue, seconds: queue.owner.leases.leave_out(-float(seconds)),
    "bulks": lambda queue: queue.until(lambda: not queue.spool.bulks.open_ones()),
    "rows": lambda queue: queue.until(lambda: not queue.spool.txns.with_rows()),
    "until": _until,
}
_SHOWN: dict[str, Callable[[Talk], list[Any]]] = {
    "journal": Talk._events,
    "folders": Talk._folders,
}
