"""Bugs planted by chance: what a rule is worth to the tests of its room.

A seed draws as many sites of each room as of any other. The tests of unit and disk that come
by the place are run first (`waiting`); for bugs that none of those notices, so are the tests
with processes that come by it, of whatever room (`passing`). The first that fails has noticed
the bug. What stays alive is a rule without a test, or a change without a meaning.
(mutmut and cosmic-ray run one command for all mutants, or in one process, and so neither
the tests of a room first nor what starts processes of its own.)
"""

from __future__ import annotations

import ast
import random
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

from faults.mutants.plant import CHECKOUT, tried
from faults.mutants.sites import Site, sites
from faults.mutants.waiting import PARTS, Passed, Waiting, in_turn, statement

ROOMS = ("spool", "journal", "queues", "access", "broker")
WITH_PROCESSES = ("test/process", "test/web", "test/sim", "test/power")
MOST = 80  # tests that look at what is done at an import
QUICK, SLOW = 60.0, 120.0  # seconds for those that look at one bug

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


def drawn(number: int, seed: int, rooms: tuple[str, ...] = ROOMS) -> list[Chance]:
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


def places(rooms: tuple[str, ...] = ROOMS) -> dict[str, list[int]]:
    """Return the lines by which tests come that may notice a bug, by file."""
    found: dict[str, set[int]] = {}
    for bug in (bug for room in rooms for bug in _bugs(room)):
        found.setdefault(bug.file, set()).add(bug.site.line)
    return {
        file: sorted(lines.union(_last_lines(file))) for file, lines in found.items()
    }


def by_place(said: Iterable[Passed], most: float) -> ByPlace:
    """Return for each place the tests that come by it, in the order in which they look."""
    came_by: dict[str, list[tuple[float, str]]] = {}
    for seconds, name, passed in said:
        for file, lines in passed.items():
            for line in lines:
                came_by.setdefault(f"{file}:{line}", []).append((seconds, name))
    return {place: in_turn(place, tests, most) for place, tests in came_by.items()}


def _lines(bug: Chance) -> list[int]:
    """Return the line of a bug; if it is done at the import, those of all functions that may
    see what it has done."""
    module = ast.parse((CHECKOUT / bug.file).read_text())
    is_of_function = statement(module, bug.site.line) is not None
    return [bug.site.line] if is_of_function else _last_lines(bug.file)


def _last_lines(file: str) -> list[int]:
    """Return a line of each function of a module."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    module = ast.parse((CHECKOUT / file).read_text())
    return [
        node.body[-1].lineno for node in ast.walk(module) if isinstance(node, functions)
    ]


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

    def __init__(self, tree: Path, waiting: Waiting) -> None:
        self._tree = tree
        self._waiting = waiting

    def quickly(self, bug: Chance, by_place: ByPlace) -> str | None:
        """Return the test of unit and disk that notices a bug, None if all pass."""
        tests = by_place.get(bug.place, [])
        if not tests:
            return None
        text = (CHECKOUT / bug.file).read_text()
        return self._waiting.noticed_by(bug.file, bug.site.applied(text), tests)

    def with_processes(self, bug: Chance, by_place: ByPlace) -> str | None:
        """Return the test with processes that notices a bug, None if all pass; of a bug that
        is done at the import any test."""
        text = (CHECKOUT / bug.file).read_text()
        tests = by_place.get(bug.place, [])
        if (lines := _lines(bug)) != [bug.site.line]:
            by_line = (by_place.get(f"{bug.file}:{line}", []) for line in lines)
            mixed = chain.from_iterable(zip_longest(*by_line))
            tests = [*naming(bug.file), *dict.fromkeys(filter(None, mixed))][:MOST]
        if not tests:
            return None
        return self._first_that_fails(bug.file, bug.site.applied(text), tests)

    def _first_that_fails(self, file: str, text: str, tests: list[str]) -> str | None:
        """Return the first test that fails with a changed file, but passes without it."""
        verdict = tried(file, text, tests, self._tree)
        if verdict.by.startswith("no end"):
            return verdict.by
        if verdict.word not in ("killed", "broken"):
            return None
        sound = tried(file, (CHECKOUT / file).read_text(), [verdict.by], self._tree)
        if sound.word == "survived":
            return verdict.by
        rest = [test for test in tests if not verdict.by.startswith(test)]
        return self._first_that_fails(file, text, rest) if rest else None


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


def files(parts: tuple[str, ...], called: str = "test_*.py") -> list[str]:
    """Return the test files of some parts that are called so."""
    return [
        str(path.relative_to(CHECKOUT))
        for part in parts
        for path in sorted((CHECKOUT / part).glob(called))
    ]
