"""Which tests with processes come by a place, in whichever of their processes.

The tests of some rooms are run once in a tree without a bug, in which the statements of these
places say when they are passed, in a file; another one says from when to when each test ran.
A test during which a place was passed comes by it, as does one that ran beside that test:
better one too many. Those that fail without a bug are left out, for they would notice all.
"""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.mutants.plant import PYTEST, PYTHON, environment
from faults.mutants.waiting import COMES_BY, with_marks

LIMIT = 3600.0  # seconds for all of them …
MOST = 240.0  # … and for those that look at one bug
MARKS, TIMES = "marks", "times"  # files in the tree
_PLUGIN = ("-p", "faults.mutants.passing", "-p", "xdist", "-n", "2")
# As a module of RQ: it is found by whatever has imported a place. A test that counts what a
# process has open, or may write, is not to be misled: what fails is passed over.
_MARKING = f"""
import time
_last = {{{{}}}}
def {COMES_BY}(place):
    now = time.time()
    if now - _last.get(place, 0.0) > 0.01:
        _last[place] = now
        try:
            with open({{marks!r}}, "a") as file:
                file.write(f"{{{{now}}}} {{{{place}}}}\\n")
        except OSError:
            pass
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """A test that passed, and when (epoch seconds)."""

    name: str
    begun: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


def coming_by(
    tree: Path, files: Iterable[str], places: Mapping[str, list[int]]
) -> dict[str, list[str]]:
    """Return for each place, as FILE:LINE, the tests of these files that come by it and
    pass, in the order in which they are to look."""
    sound = {name: (tree / name).read_text() for name in places}
    _write_marking(tree)
    try:
        for name, text in sound.items():
            (tree / name).write_text(_marked(text, name, places[name]))
        _run(tree, files)
    finally:
        for name, text in sound.items():
            (tree / name).write_text(text)
    ran = _ran(tree)
    return {
        place: _chosen(
            test
            for test in ran
            if any(test.begun <= moment <= test.ended for moment in moments)
        )
        for place, moments in _passed(tree).items()
    }


def _chosen(tests: Iterable[Ran]) -> list[str]:
    """Return as many tests as there is time for: the quickest of each file first, for in
    one that is about something else all come by without a look."""
    turns: Counter[str] = Counter()
    in_turn = []
    for test in sorted(tests, key=lambda test: test.seconds):
        file = test.name.partition("::")[0]
        turns[file] += 1
        in_turn.append((turns[file], test.seconds, test.name))
    spent = itertools.accumulate(seconds for _, seconds, _ in sorted(in_turn))
    return [
        row[2] for row, sum_ in zip(sorted(in_turn), spent, strict=True) if sum_ <= MOST
    ]


def _write_marking(tree: Path) -> None:
    marks = tree / MARKS
    marks.touch()
    marks.chmod(0o666)  # scripts run as other users
    (tree / "rq" / "comes_by.py").write_text(_MARKING.format(marks=str(marks)))


def _marked(text: str, name: str, lines: list[int]) -> str:
    module = with_marks(text, name, lines)
    at = sum(
        isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for node in module.body
    ) + (ast.get_docstring(module) is not None)
    module.body.insert(at, ast.parse(f"from rq.comes_by import {COMES_BY}").body[0])
    return ast.unparse(ast.fix_missing_locations(module))


def _run(tree: Path, files: Iterable[str]) -> None:
    subprocess.run(
        [*PYTHON, *PYTEST, *_PLUGIN, f"--times={tree / TIMES}", *files],
        cwd=tree,
        env=environment(tree) | {"PYTHONPATH": str(tree / "test")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=LIMIT,
        check=False,
    )


def _passed(tree: Path) -> dict[str, list[float]]:
    """Return the moments at which each place was passed."""
    passed: dict[str, list[float]] = {}
    for text in (tree / MARKS).read_text().splitlines():
        moment, _, place = text.partition(" ")
        passed.setdefault(place, []).append(float(moment))
    return passed


def _ran(tree: Path) -> list[Ran]:
    """Return the tests that passed. A test that was set up for others, too, ran from then
    on; what it does at its end may be passed after it."""
    times: dict[str, list[tuple[str, float, float]]] = {}
    for text in (tree / TIMES).read_text().splitlines():
        outcome, begun, ended, name = text.split(" ", 3)
        times.setdefault(name, []).append((outcome, float(begun), float(ended)))
    return [
        Ran(name, min(row[1] for row in rows), max(row[2] for row in rows))
        for name, rows in times.items()
        if all(outcome == "passed" for outcome, _, _ in rows)
    ]


# ---- as a plugin of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", help="file for when each test ran")


class Times:
    """Notes when each test ran, in the process that hears of all."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        text = f"{report.outcome} {report.start} {report.stop} {report.nodeid}\n"
        os.write(self._fd, text.encode())


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and (path := config.getoption("times")):
        config.pluginmanager.register(Times(path))
