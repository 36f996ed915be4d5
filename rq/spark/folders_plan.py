"""Which directories of message folders are to be listed, by queue, state and date.

Pure reading of directories, without Spark. Dates are those of the ids, `YYYYMMDD`: done
and relayed lie in directories of their date, of the other states the names tell it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from rq import names
from rq.layout import Root
from rq.words.states import COUNTED, HASHED, State

_LARGE = 5000  # names in a directory that several tasks share


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for; None: all."""

    queues: frozenset[str] | None = None
    states: frozenset[str] | None = None
    dates: frozenset[str] | None = None
    first: str = ""  # date
    last: str = "99999999"

    def has_queue(self, name: str) -> bool:
        return self.queues is None or name in self.queues

    def has_state(self, state: str) -> bool:
        return self.states is None or state in self.states

    def has_date(self, date: str) -> bool:
        if self.dates is not None and date not in self.dates:
            return False
        return self.first <= date <= self.last

    def only(self, what: str, values: frozenset[str]) -> Wanted:
        """Return what is wanted of `queues`, `states` or `dates` among `values` alone."""
        now = getattr(self, what)
        change: dict[str, Any] = {what: values if now is None else values & now}
        return replace(self, **change)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A directory of message folders, or those of its names that fall to one task."""

    queue: str
    state: str
    path: str
    slice: int = 0
    slices: int = 1

    def names(self, wanted: Wanted) -> Iterator[str]:
        """Give the ids of the messages that are wanted, as they lie there now."""
        dot = "." if self.state == State.DISMISSED else ""
        for name in _list(self.path):
            if name.startswith(".") != bool(dot):
                continue
            msg_id = name.removeprefix(dot)
            mine = (
                self.slices == 1 or crc32(msg_id.encode()) % self.slices == self.slice
            )
            if mine and names.is_msg_id(msg_id) and wanted.has_date(msg_id[:8]):
                yield msg_id


@dataclass(slots=True)
class Planning:
    """The directories that were found, and how many were listed to find them."""

    leaves: list[Leaf] = field(default_factory=list)
    listed: int = 0

    def list(self, path: str, keep: Callable[[str], bool]) -> list[str]:
        self.listed += 1
        return sorted(name for name in _list(path) if keep(name))


def plan(root: Root, wanted: Wanted, slices: int = 1) -> Planning:
    """Find the directories that may hold what is wanted; a large one is cut in slices."""
    planning = Planning()
    states = [state for state in COUNTED if wanted.has_state(state)]
    for name in planning.list(str(root.queues), names.is_queue_name):
        place = root.queues / name
        if not wanted.has_queue(name) or not (place / "config.json").is_file():
            continue
        for state in states:
            if state in HASHED:
                _hashed(planning, place, state, wanted)
            else:
                _flat(planning, place, state, slices)
    return planning


def _flat(planning: Planning, place: Path, state: State, slices: int) -> None:
    path = str(place / (State.ERR if state is State.DISMISSED else state))
    number = slices if len(planning.list(path, names.is_msg_id)) > _LARGE else 1
    for part in range(number):
        planning.leaves.append(Leaf(place.name, state, path, part, number))


def _hashed(planning: Planning, place: Path, state: State, wanted: Wanted) -> None:
    top = str(place / state)
    for date in planning.list(top, _is_date):
        if not wanted.has_date(date):
            continue
        for hour in planning.list(f"{top}/{date}", _is_two):
            for minute in planning.list(f"{top}/{date}/{hour}", _is_two):
                path = f"{top}/{date}/{hour}/{minute}"
                planning.leaves.append(Leaf(place.name, state, path))


def _is_date(name: str) -> bool:
    return len(name) == 8 and name.isdigit()


def _is_two(name: str) -> bool:
    return len(name) == 2 and name.isdigit()


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


def shares(leaves: list[Leaf], number: int) -> list[list[Leaf]]:
    """Deal directories out to at most `number` tasks, neighbours together."""
    size = max(1, -(-len(leaves) // max(1, number)))
    return [leaves[at : at + size] for at in range(0, len(leaves), size)]
