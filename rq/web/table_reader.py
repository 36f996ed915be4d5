"""Asks what reads Delta tables, a process of its own, and keeps what it said.

It runs when a table has changed since, or after a while, for batches that are held change no
table: one at a time, and not more often than pages renew themselves. What took too long is
not asked again for a while, or each page would wait for it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from rq import tables
from rq.errors import Busy
from rq.layout import Root
from rq.tables import Answer, Facts, Held, Name

_PROGRAM = (sys.executable, "-I", "-m", "rq.spark.table_facts")
_PATIENCE = 30.0  # seconds until a process is ended that reads tables
_PAUSE = 3.0  # seconds between two
_OLDEST = 30.0  # seconds for which an answer holds though no table has changed
_MOST = 500  # tables that are kept
_UNREADABLE = "Tables cannot be read now"
_TOO_LONG = f"it took more than {_PATIENCE:.0f} s"
_REST = 60.0  # seconds for which what took too long is not asked again


@dataclass(frozen=True, slots=True)
class _Kept:
    stamp: tuple[int, int]
    facts: Facts


@dataclass(slots=True)
class Reader:
    """What is known of the tables of a root."""

    root: Root
    _kept: dict[Name, _Kept] = field(default_factory=dict)
    _held: list[Held] = field(default_factory=list)
    _at: float = 0.0
    _slow: dict[frozenset[Name], float] = field(default_factory=dict)  # since when
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def of(self, names: Sequence[Name]) -> list[Facts]:
        """Return how tables stand, or stood some seconds ago."""
        async with self._turn:
            await asyncio.to_thread(self._renew, names)
        return [self._kept[name].facts for name in names if name in self._kept]

    def held(self) -> list[Held]:
        """Return the batches that are in no table yet, as of the last question."""
        return self._held

    def _renew(self, names: Sequence[Name]) -> None:
        stamps = {name: tables.stamp(self.root, name) for name in names}
        age = time.monotonic() - self._at
        missing = [name for name in names if name not in self._kept]
        changed = [n for n in names if n not in missing and self._is_old(n, stamps[n])]
        if not self._at or age > _OLDEST or missing or (changed and age > _PAUSE):
            self._ask([*missing, *changed], stamps)

    def _is_old(self, name: Name, stamp: tuple[int, int]) -> bool:
        return self._kept[name].stamp != stamp

    def _ask(self, names: Sequence[Name], stamps: dict[Name, tuple[int, int]]) -> None:
        answer = self._answer(names)
        if len(self._kept) + len(names) > _MOST:
            self._kept = {n: kept for n, kept in self._kept.items() if n in stamps}
        for name, facts in zip(names, answer["tables"], strict=True):
            self._kept[name] = _Kept(stamps[name], facts)
        self._held, self._at = answer["held"], time.monotonic()

    def _answer(self, names: Sequence[Name]) -> Answer:
        now, wanted = time.monotonic(), frozenset(names)
        self._slow = {n: at for n, at in self._slow.items() if now - at < _REST}
        if any(slow <= wanted for slow in self._slow):
            raise Busy(f"{_UNREADABLE}: {_TOO_LONG}, less than a minute ago")
        try:
            return _answer(self.root, names)
        except subprocess.TimeoutExpired:
            self._slow[wanted] = time.monotonic()
            raise Busy(f"{_UNREADABLE}: {_TOO_LONG}") from None


def _answer(root: Root, names: Sequence[Name]) -> Answer:
    """Return what the process says; Busy, TimeoutExpired."""
    words = [*_PROGRAM, str(root.path), *(name.text for name in names)]
    try:
        ended = subprocess.run(
            words, capture_output=True, check=True, timeout=_PATIENCE, env={}
        )
        answer: Answer = orjson.loads(ended.stdout)
    except (subprocess.CalledProcessError, OSError, orjson.JSONDecodeError) as error:
        raise Busy(f"{_UNREADABLE}: {_why(error)}") from None
    return answer


def _why(error: Exception) -> str:
    lines = getattr(error, "stderr", b"").decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), str(error))[:300]
