"""Bugs planted by chance: what a rule is worth to the tests of its room.

A seed draws as many sites of each room as of any other. The tests of unit and disk that come
by the place are run first, the quickest first, then those with processes of its room that do
(`passing`); the first that fails has noticed the bug. What stays alive is a rule without a test, or a change
without a meaning.
(mutmut and cosmic-ray run one command for all mutants, or in one process, and so neither
the tests of a room first nor what starts processes of its own.)
"""

from __future__ import annotations

import ast
import random
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faults.mutants.plant import CHECKOUT, tried
from faults.mutants.sites import Site, sites
from faults.mutants.waiting import PARTS, Waiting, statement

# The tests with processes that each room has, the sharpest first.
ROOMS = {
    "spool": ("test_crash_*", "test_transactions", "test_rows*", "test_recounted"),
    "journal": (
        *("test_crash_journal", "test_crash_accepting", "test_copied_queue"),
        *("test_displaced", "test_retention"),
    ),
    "queues": (
        *("test_queue_commands", "test_queue_schedule", "test_hold", "test_order"),
        *("test_leases", "test_unique", "test_retry", "test_bulk", "test_batch"),
        *("test_transactions", "test_rows", "test_recounted", "test_pauses"),
        *("test_persistent_messages", "test_result", "test_limits", "test_turns"),
        *("test_lease_schedule", "test_lease_trouble", "test_notice", "test_silence"),
    ),
    "access": (
        *("test_kernel_identity", "test_keys_of_users", "test_token_verbs"),
        *("test_gate", "test_signin", "test_door_tls", "test_guarded_doors"),
        *("test_guard", "test_open_doors"),
    ),
    "broker": (
        *("test_broker_verbs", "test_broker", "test_broker_admin", "test_broker_nodes"),
        *("test_broker_turns", "test_broker_tls", "test_broker_bridge"),
    ),
}

ByPlace = dict[str, list[str]]  # the tests that come by a place


@dataclass(frozen=True, slots=True)
class Chance:
    """A bug at a site of a module."""

    file: str
    site: Site

    @property
    def room(self) -> str:
        return self.file.split("/")[1]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.site.line}"

    def __str__(self) -> str:
        old, new = " ".join(self.site.old.split()), self.site.new or "(nothing)"
        return f"{self.place}: {old} -> {new}"


def drawn(
    number: int, seed: int, rooms: tuple[str, ...] = tuple(ROOMS)
) -> list[Chance]:
    """Return so many bugs, of each room in turn."""
    dice = random.Random(seed)
    every = {room: list(_bugs(room)) for room in rooms}
    for bugs in every.values():
        dice.shuffle(bugs)
    return [every[rooms[turn % len(rooms)]].pop() for turn in range(number)]


def named(words: list[str]) -> list[Chance]:
    """Return the bugs at some places, FILE:LINE each."""
    chosen = []
    for word in words:
        file, _, line = word.partition(":")
        every = sites((CHECKOUT / file).read_text())
        chosen += [Chance(file, site) for site in every if site.line == int(line)]
    return chosen


def places(bugs: list[Chance]) -> dict[str, list[int]]:
    """Return the lines of bugs, by file."""
    found: dict[str, list[int]] = {}
    for bug in bugs:
        found.setdefault(bug.file, []).append(bug.site.line)
    return found


@dataclass(frozen=True, slots=True)
class Same:
    """A line that may be changed without a meaning."""

    file: str
    lines: list[str]  # that one, and what stands before it
    why: str

    def places(self) -> list[int]:
        """Return the numbers of the lines that read so."""
        text = (CHECKOUT / self.file).read_text()
        every = [line.strip() for line in text.splitlines()]
        size = len(self.lines)
        ends = range(size, len(every) + 1)
        return [end for end in ends if every[end - size : end] == self.lines]


def without_meaning() -> list[Same]:
    kept = tomllib.loads(Path(__file__).with_name("same.toml").read_text())
    return [Same(**row) for row in kept["same"]]


def _bugs(room: str) -> Iterator[Chance]:
    same = {(row.file, line) for row in without_meaning() for line in row.places()}
    for path in sorted((CHECKOUT / "rq" / room).rglob("*.py")):
        file = str(path.relative_to(CHECKOUT))
        for site in sites(path.read_text()):
            if (file, site.line) not in same:
                yield Chance(file, site)


class Judge:
    """What tells whether a bug is noticed, in a tree of its own."""

    def __init__(
        self, tree: Path, waiting: Waiting, by_place: ByPlace, processes: ByPlace
    ) -> None:
        """`processes`: as `by_place`, the tests with processes."""
        self._tree = tree
        self._waiting = waiting
        self._by_place = by_place
        self._processes = processes

    def noticed_by(self, bug: Chance) -> str | None:
        """Return the test that notices a bug, None if all pass."""
        text = (CHECKOUT / bug.file).read_text()
        changed = bug.site.applied(text)
        if statement(ast.parse(text), bug.site.line) is None:
            tests = [*naming(bug.file), *of_room(bug.room)]
            return self._tried(bug.file, changed, tests)
        if tests := self._by_place.get(bug.place, []):
            by = self._waiting.noticed_by(bug.file, changed, tests)
            if by is not None:
                return by
        return self._tried(bug.file, changed, self._processes.get(bug.place, []))

    def _tried(self, file: str, changed: str, tests: list[str]) -> str | None:
        if not tests:
            return None
        verdict = tried(file, changed, tests, self._tree)
        is_noticed = verdict.word in ("killed", "broken")
        return verdict.by if is_noticed or verdict.by.startswith("no end") else None


def naming(file: str) -> list[str]:
    """Return the test files of unit and disk that import from a module."""
    name = re.escape(".".join(Path(file).with_suffix("").parts))
    room, _, module = name.rpartition(r"\.")
    wanted = re.compile(rf"\b{name}\b|from {room} import [^\n]*\b{module}\b")
    return [
        str(path.relative_to(CHECKOUT))
        for part in PARTS
        for path in sorted((CHECKOUT / part).glob("test_*.py"))
        if wanted.search(path.read_text())
    ]


def of_room(room: str) -> list[str]:
    """Return the test files with processes of a room, the sharpest first."""
    return [
        str(path.relative_to(CHECKOUT))
        for pattern in ROOMS[room]
        for part in ("process", "web")
        for path in sorted((CHECKOUT / "test" / part).glob(f"{pattern}.py"))
    ]
