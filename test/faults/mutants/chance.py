"""Bugs planted by chance: what a rule is worth to the tests of its room.

A seed draws as many sites of each room as of any other. The tests that name the module are
run first, then those of its room, without and with processes; the first that fails has
noticed the bug. What stays alive is a rule without a test, or a change without a meaning.
(mutmut and cosmic-ray run one command for all mutants, or in one process, and so neither
the tests of a room first nor what starts processes of its own.)
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faults.mutants.plant import CHECKOUT, tried
from faults.mutants.sites import Site, sites

# The tests with processes that each room has, the sharpest first.
ROOMS = {
    "spool": ("test_crash_*", "test_transactions", "test_rows"),
    "journal": ("test_crash_journal", "test_crash_accepting", "test_copied_queue"),
    "queues": (
        *("test_queue_commands", "test_queue_schedule", "test_hold", "test_order"),
        *("test_leases", "test_unique", "test_retry", "test_bulk", "test_batch"),
    ),
    "access": (
        *("test_kernel_identity", "test_keys_of_users", "test_token_verbs"),
        "test_guarded_doors",
    ),
    "broker": ("test_broker_verbs", "test_broker", "test_broker_admin"),
}


@dataclass(frozen=True, slots=True)
class Chance:
    """A bug at a site of a module."""

    file: str
    site: Site

    def __str__(self) -> str:
        old, new = " ".join(self.site.old.split()), self.site.new or "(nothing)"
        return f"{self.file}:{self.site.line}: {old} -> {new}"


def drawn(
    number: int, seed: int, rooms: tuple[str, ...] = tuple(ROOMS)
) -> list[Chance]:
    """Return so many bugs, of each room in turn."""
    dice = random.Random(seed)
    every = {room: list(_bugs(room)) for room in rooms}
    for bugs in every.values():
        dice.shuffle(bugs)
    return [every[rooms[turn % len(rooms)]].pop() for turn in range(number)]


def _bugs(room: str) -> Iterator[Chance]:
    for path in sorted((CHECKOUT / "rq" / room).rglob("*.py")):
        file = str(path.relative_to(CHECKOUT))
        yield from (Chance(file, site) for site in sites(path.read_text()))


def noticed_by(bug: Chance, tree: Path) -> str | None:
    """Plant a bug in `tree`; return the test that notices it, None if all pass."""
    changed = bug.site.applied((CHECKOUT / bug.file).read_text())
    seen: set[str] = set()
    for tests in stages(bug.file):
        new = [test for test in tests if test not in seen]
        seen.update(new)
        if new:
            verdict = tried(bug.file, changed, new, tree)
            if verdict.word != "survived" or verdict.by.startswith("no end"):
                return verdict.by
    return None


def stages(file: str) -> Iterator[list[str]]:
    """Give the test files that may notice a bug in a module, the sharpest first."""
    parts = Path(file).with_suffix("").parts
    room, module = parts[1], parts[-1]
    quick = [*_files("unit"), *_files("disk")]
    named = re.compile(
        rf"\b{re.escape('.'.join(parts))}\b"
        rf"|from {re.escape('.'.join(parts[:-1]))} import [^\n]*\b{module}\b"
    )
    yield [test for test, text in quick if named.search(text)]
    yield [test for test, text in quick if f"rq.{room}" in text]
    patterns = ROOMS[room]
    yield [
        str(path.relative_to(CHECKOUT))
        for pattern in patterns
        for path in sorted((CHECKOUT / "test/process").glob(f"{pattern}.py"))
    ]


def _files(part: str) -> Iterator[tuple[str, str]]:
    for path in sorted((CHECKOUT / "test" / part).glob("test_*.py")):
        yield str(path.relative_to(CHECKOUT)), path.read_text()
