"""Which tests with processes come by a place, in whichever of their processes.

The tests of some files are run once in a tree without a bug, in which the statements of the
places say when they are passed, in a file, and for which of the processes of pytest; another
one says from when to when each test ran, and in which of them. A test during which a place was
passed on its behalf comes by it. Those that fail without a bug are left out, for they would
notice all.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import pytest
from faults.mutants.plant import PYTEST, PYTHON, environment
from faults.mutants.waiting import COMES_BY, Passed, by_file, with_marks

LIMIT = 2400.0  # seconds for some files of tests
MARKS, TIMES = "marks", "times"  # files in the tree
WORKER = "PYTEST_XDIST_WORKER"  # which all processes have that a test starts
_UNKNOWN = "-"  # but those that begin with no environment
Marks = Mapping[str, list[tuple[float, str]]]  # by worker of pytest, in order
_AT_ONCE = ("-p", "xdist", "-n", "4", "--dist", "loadfile")  # most of them wait
_PLUGIN = ("-p", "faults.mutants.passing", *_AT_ONCE)
# As a module of RQ: it is found by whatever has imported a place. A test that counts what a
# process has open, or may write, is not to be misled: what fails is passed over.
_MARKING = f"""
import os, time
_last = {{{{}}}}
_worker = os.environ.get({WORKER!r}, {_UNKNOWN!r})
def {COMES_BY}(place):
    now = time.time()
    if now - _last.get(place, 0.0) > 0.03:
        _last[place] = now
        try:
            with open({{marks!r}}, "a") as file:
                file.write(f"{{{{now}}}} {{{{_worker}}}} {{{{place}}}}\\n")
        except OSError:
            pass
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """A test that passed, and when (epoch seconds)."""

    name: str
    worker: str
    begun: float
    ended: float

    def passed(self, marks: Marks) -> set[str]:
        """Return the places that were passed during it, on its behalf."""
        return {
            place
            for worker in (self.worker, _UNKNOWN)
            for _, place in _between(marks.get(worker, []), self.begun, self.ended)
        }

    @property
    def seconds(self) -> float:
        return self.ended - self.begun


def _between(
    marks: list[tuple[float, str]], begun: float, ended: float
) -> list[tuple[float, str]]:
    first = bisect_left(marks, begun, key=itemgetter(0))
    return marks[first : bisect_right(marks, ended, key=itemgetter(0))]


def coming_by(
    tree: Path, files: list[str], places: Mapping[str, list[int]]
) -> list[Passed]:
    """Return the tests of some files that pass, and by which places each comes."""
    sound = {name: (tree / name).read_text() for name in places}
    _write_marking(tree)
    try:
        for name, text in sound.items():
            (tree / name).write_text(_marked(text, name, places[name]))
        _run(tree, files)
    finally:
        for name, text in sound.items():
            (tree / name).write_text(text)
    marks = _marks(tree)
    return [
        (test.seconds, test.name, by_file(test.passed(marks))) for test in _ran(tree)
    ]


def _write_marking(tree: Path) -> None:
    (tree / TIMES).unlink(missing_ok=True)
    marks = tree / MARKS
    marks.write_text("")
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


def _run(tree: Path, files: list[str]) -> None:
    with suppress(subprocess.TimeoutExpired):  # what has run by then is known
        subprocess.run(
            [*PYTHON, *PYTEST, *_PLUGIN, f"--times={tree / TIMES}", *files],
            cwd=tree,
            env=environment(tree) | {"PYTHONPATH": str(tree / "test")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
        )


def _marks(tree: Path) -> Marks:
    """Return when each place was passed."""
    marks: dict[str, list[tuple[float, str]]] = {}
    with (tree / MARKS).open() as lines:
        for text in lines:
            moment, worker, place = text.rstrip().split(" ", 2)
            marks.setdefault(worker, []).append((float(moment), sys.intern(place)))
    for of_worker in marks.values():
        of_worker.sort()
    return marks


def _ran(tree: Path) -> list[Ran]:
    """Return the tests that passed. A test that was set up for others, too, ran from then
    on; what it does at its end may be passed after it."""
    times: dict[tuple[str, str], list[tuple[str, float, float]]] = {}
    for text in (tree / TIMES).read_text().splitlines():
        outcome, worker, begun, ended, name = text.split(" ", 4)
        row = outcome, float(begun), float(ended)
        times.setdefault((name, worker), []).append(row)
    return [
        Ran(name, worker, min(row[1] for row in rows), max(row[2] for row in rows))
        for (name, worker), rows in times.items()
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
        worker = getattr(report, "worker_id", _UNKNOWN)
        words = report.outcome, worker, report.start, report.stop, report.nodeid
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and (path := config.getoption("times")):
        config.pluginmanager.register(Times(path))
