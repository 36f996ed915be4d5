"""Tests that wait, collected and imported, until they are asked to look at a bug.

A process of pytest collects those of unit and disk once, and forks for each bug: in the
child the functions of its module get the code that they have with it. That costs a second,
a pytest of its own ten. All tests are run before without a bug, to learn which of them come
by which place, and pass.
"""

from __future__ import annotations

import ast
import builtins
import gc
import inspect
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from faults.mutants.plant import PYTEST, PYTHON, environment

PARTS = ("test/unit", "test/disk")
LONGEST = 120.0  # seconds: a test that takes as long waits in vain
COMES_BY = "_rq_comes_by"
TURN = "turn"  # a file of the tree with the name of the test that runs
Passed = tuple[float, str, dict[str, list[int]]]  # seconds, test, lines by file


class Waiting:
    """The tests of unit and disk in a tree."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._line, theirs = socket.socketpair()
        plugin = ("-p", "faults.mutants.waiting", "--continue-on-collection-errors")
        words = (*plugin, f"--line={theirs.fileno()}", *PARTS)
        with theirs:
            self._process = subprocess.Popen(
                [*PYTHON, *PYTEST, *words],
                cwd=tree,
                env=environment(tree) | {"PYTHONPATH": str(tree / "test")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self._answers = self._line.makefile("r")

    def coming_by(
        self, files: list[str], places: Mapping[str, list[int]]
    ) -> list[Passed]:
        """Return the tests of some files that pass, and by which places each comes."""
        answer = self._asked("look", files=files, places=places)
        return [(seconds, name, passed) for seconds, name, passed in answer]

    def noticed_by(self, file: str, changed: str, tests: list[str]) -> str | None:
        """Return the first of these tests that fails with a changed file."""
        sound = (self._tree / file).read_text()
        try:
            answer = self._asked("try", file=file, changed=changed, tests=tests)
        finally:
            (self._tree / file).write_text(sound)
        return None if answer is None else str(answer)

    def _asked(self, work: str, **words: object) -> Any:
        self._line.sendall(json.dumps({"work": work, **words}).encode() + b"\n")
        return json.loads(self._answers.readline())

    def close(self) -> None:
        self._answers.close()
        self._line.close()
        self._process.wait()


def in_turn(place: str, tests: Iterable[tuple[float, str]], most: float) -> list[str]:
    """Return the names of as many tests, with their seconds, as there is time for. First those
    of files that are called as the place is, and of each file the quickest: in one that is
    about something else all come by without a look."""
    turns: Counter[str] = Counter()
    rows = []
    of_place = _words(place)
    for seconds, name in sorted(tests):
        file = name.partition("::")[0]
        turns[file] += 1
        in_common = len(of_place & _words(Path(file).name))
        rows.append((-in_common, turns[file], seconds, name))
    rows.sort()
    spent = itertools.accumulate(row[2] for row in rows)
    return [row[3] for row, sum_ in zip(rows, spent, strict=True) if sum_ <= most]


def _words(path: str) -> set[str]:
    words = re.findall("[a-z]+", path.partition(".py")[0])
    return {word.removesuffix("s") for word in words} - {"rq", "test"}


# ---- as a plugin of pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--line", type=int, help="socket over which bugs come")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    with socket.socket(fileno=session.config.getoption("line")) as line:
        for text in line.makefile("r"):
            line.sendall(_in_child(session, **json.loads(text)).encode() + b"\n")
    return True


def _in_child(session: pytest.Session, work: str, **words: Any) -> str:
    """Return what a function gives, as JSON, in a process that is ended then; the name of
    the test in which that has ended by itself, or never does."""
    answer, turn = session.config.rootpath / "answer", session.config.rootpath / TURN
    answer.unlink(missing_ok=True)
    turn.unlink(missing_ok=True)
    if (child := os.fork()) == 0:
        os.setpgid(0, 0)
        do = _look if work == "look" else _try
        answer.write_text(json.dumps(do(session, **words)))
        os._exit(0)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.02)
        if turn.exists() and time.time() - turn.stat().st_mtime > LONGEST:
            os.kill(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what tests have left
    return answer.read_text() if answer.exists() else json.dumps(turn.read_text())


def _look(
    session: pytest.Session, files: list[str], places: dict[str, list[int]]
) -> list[Passed]:
    """Run the tests of some files, and note by which places each comes."""
    seen: set[str] = set()
    setattr(builtins, COMES_BY, seen.add)
    for file, lines in places.items():
        sound = Path(file).read_text()
        _plant(file, sound, with_marks(sound, file, lines))
    passed = []
    for item in session.items:
        if item.nodeid.partition("::")[0] not in files:
            continue
        seen.clear()
        began = time.monotonic()
        if _passes(item):
            passed.append((time.monotonic() - began, item.nodeid, by_file(seen)))
    return passed


def by_file(places: Iterable[str]) -> dict[str, list[int]]:
    """Return the lines of places, FILE:LINE each."""
    lines: dict[str, list[int]] = {}
    for place in places:
        file, _, line = place.rpartition(":")
        lines.setdefault(file, []).append(int(line))
    return lines


def _try(
    session: pytest.Session, file: str, changed: str, tests: list[str]
) -> str | None:
    """Return the first of the tests that fails with a changed file."""
    _plant(file, Path(file).read_text(), ast.parse(changed))
    Path(file).write_text(changed)  # for processes that a test starts
    items = {item.nodeid: item for item in session.items}
    return next((name for name in tests if not _passes(items[name])), None)


def _passes(item: pytest.Item) -> bool:
    (item.config.rootpath / TURN).write_text(item.nodeid)
    failed = item.session.testsfailed
    item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
    return item.session.testsfailed == failed


def _plant(file: str, sound: str, changed: ast.Module) -> None:
    """Give the functions of a module the code that they have in a changed one."""
    old, new = compile(sound, file, "exec"), compile(changed, file, "exec")
    codes = dict(zip(_functions(old), _functions(new), strict=True))
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__ in codes:
            # It may have lost its only super(): then only processes have the bug.
            with suppress(ValueError):
                function.__code__ = codes[function.__code__]


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Give the code of the functions of a module and of its classes, in order."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & inspect.CO_OPTIMIZED:
                yield inner
            else:
                yield from _functions(inner)


# ---- marks


def statement(module: ast.Module, line: int) -> ast.stmt | None:
    """Return the statement of a function's body that a line is of; None: it is done when
    the module is imported."""
    around = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if any(isinstance(node, functions) for node in around[:-1]):
        return around[-1]
    return None


def with_marks(text: str, file: str, lines: list[int]) -> ast.Module:
    """Return a module that calls `COMES_BY` before the statements of these lines."""
    module = ast.parse(text)
    marks: dict[ast.stmt, list[ast.stmt]] = {}
    for line in lines:
        if (node := statement(module, line)) is not None:
            call = ast.parse(f"{COMES_BY}({f'{file}:{line}'!r})").body[0]
            marks.setdefault(node, []).append(call)
    for node in list(ast.walk(module)):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                block[:] = [
                    part for each in block for part in (*marks.get(each, ()), each)
                ]
    return module
