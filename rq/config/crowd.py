"""What thousands of parked queues answer, all looked at together.

What a queue has left is read once, and again when the file looks different; of its answers
those are kept that are asked for here, and what is equal in them, say an hour in which nothing
happened, is one object: who reads an answer changes nothing in it. Every look still makes sure that all lies
as the queue has left it, but pays once what is the same for all: the files of admins are one
list of a directory, and new/ is listed again only when it has changed. A queue that is
anything but parked and untouched is not answered for: who asks has to ask it by itself.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from rq.config import admin, parked
from rq.config.parked import LOOKED_AT, Answer, Parked, Stamp
from rq.layout import Root

_MOST = 50_000  # queues that are kept
_PARTS = 10_000  # parts of answers that are remembered
_SAME_TICK = 1.0  # seconds: a file that comes so soon may leave the times as they were
_STAMP: Final = struct.Struct("=4Q")
_ABSENT: Final = bytes(_STAMP.size)  # of what is not there
_ALL: Final = 2**64 - 1  # a person may date a file before 1677, or after 2262


@dataclass(slots=True, kw_only=True)
class _Left:
    """What a queue has left, and how all looked then."""

    file: bytes  # how parked.json looks
    wakes_at: float | None
    looks: bytes  # of all that a person may change, but files of admins
    is_empty: bool = False  # new/, which is listed no more as long as it looks the same
    answers: dict[str, Answer] = field(default_factory=dict)  # by command


class Crowd:
    """The parked queues of a root, for a process that shows them all."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._kept: dict[str, _Left] = {}
        self._parts: dict[bytes, object] = {}  # of answers, by their JSON
        self._above = f"{root.queues}/"

    def answers(self, names: Iterable[str], command: str) -> Mapping[str, Answer]:
        """Return what those answer that are parked, and lie as they were left."""
        return {
            name: left.answers[command]
            for name, left in self._current(names, command)
            if command in left.answers
        }

    def current(self, names: Iterable[str]) -> list[str]:
        """Return those that are parked, and lie as they were left."""
        return [name for name, _ in self._current(names, "")]

    def _current(
        self, names: Iterable[str], command: str
    ) -> Iterable[tuple[str, _Left]]:
        special, now = admin.touched(self._root), time.time()
        for name in names:
            if name in special:
                continue
            place = f"{self._above}{name}/"
            left = self._read(name, place, command)
            if left is not None and _is_as_left(place, left, now):
                yield name, left

    def _read(self, name: str, place: str, command: str) -> _Left | None:
        file = _look(f"{place}parked.json")
        if file == _ABSENT:
            self._kept.pop(name, None)
            return None
        left = self._kept.get(name)
        if left is None or left.file != file:
            left = None
        elif not command or command in left.answers:
            return left
        facts = parked.read(self._root.queue(name))
        if facts is None or any(facts.stamps.get(word) for word in admin.SUFFIXES):
            return None
        if left is None:
            left = self._keep(name, file, facts)
        if command in facts.answers:
            left.answers[command] = self._shared(facts.answers[command])
        return left

    def _shared(self, answer: Answer) -> Answer:
        """Return an answer that has its parts in common with equal ones."""
        if isinstance(answer, Mapping):
            return {word: self._part(value) for word, value in answer.items()}
        return [
            self._shared(value) if isinstance(value, dict) else value
            for value in answer
        ]

    def _part(self, value: object) -> object:
        if not isinstance(value, dict | list):
            return value
        if len(self._parts) >= _PARTS:
            self._parts.clear()
        return self._parts.setdefault(orjson.dumps(value), value)

    def _keep(self, name: str, file: bytes, facts: Parked) -> _Left:
        if len(self._kept) >= _MOST:
            self._kept.clear()  # at once: other threads look, too
        looks = b"".join(_packed(facts.stamps.get(each, [])) for each in LOOKED_AT)
        left = _Left(file=file, wakes_at=facts.wakes_at, looks=looks)
        self._kept[name] = left
        return left


def _is_as_left(place: str, left: _Left, now: float) -> bool:
    """As `parked.is_current`, of one without files of admins."""
    if left.wakes_at is not None and now >= left.wakes_at:
        return False
    if b"".join([_look(place + each) for each in LOOKED_AT]) != left.looks:
        return False
    if not left.is_empty:
        return _has_none(f"{place}new", left, now)
    return True


def _has_none(new: str, left: _Left, now: float) -> bool:
    """Whether nothing lies in new/. What came just before the queue noted how it looks does
    not change that, so it is listed, and again until a file that comes must change it."""
    try:
        with os.scandir(new) as there:
            if next(there, None) is not None:
                return False
        left.is_empty = now - os.stat(new).st_mtime > _SAME_TICK
    except OSError:
        return False
    return True


def _look(path: str) -> bytes:
    """Return how a file or directory looks, as `parked.stamp` tells it."""
    try:
        about = os.stat(path)
    except OSError:
        return _ABSENT
    return _STAMP.pack(
        about.st_dev,
        about.st_ino,
        about.st_mtime_ns & _ALL,
        about.st_ctime_ns & _ALL,
    )


def _packed(stamp: Stamp) -> bytes:
    """As `_look`, of a stamp that was read; b"": it is none, and no file looks so."""
    if not stamp:
        return _ABSENT
    try:
        return _STAMP.pack(*(number & _ALL for number in stamp))
    except (struct.error, TypeError):
        return b""
