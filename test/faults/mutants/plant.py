"""Plants one bug at a time in a copy of the tree and runs the tests that must notice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
COPIED = ("rq", "test", "pyproject.toml")
LIMIT = 540.0  # seconds for the tests of one mutant: many wait in vain, and 60 at most
FAILED, NONE_RAN = 1, 5  # exit statuses of pytest


@dataclass(frozen=True, slots=True)
class Mutant:
    """A planted bug."""

    name: str
    file: str
    old: str
    new: str
    killed_by: list[str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests said of a mutant: killed, survived, skipped or stale."""

    word: str
    by: str
    seconds: float


def mutants() -> list[Mutant]:
    planted = tomllib.loads((HERE / "planted.toml").read_text())
    return [Mutant(**one) for one in planted["mutant"]]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Give a copy of the tree in which bugs may be planted."""
    with tempfile.TemporaryDirectory(prefix="rq-mutants-") as scratch:
        os.chmod(scratch, 0o755)  # scripts that run as other users lie in it
        for name in COPIED:
            source, target = CHECKOUT / name, Path(scratch) / name
            if source.is_dir():
                shutil.copytree(
                    source, target, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy2(source, target)
        yield Path(scratch)


def judge(mutant: Mutant, tree: Path) -> Verdict:
    """Plant a bug in `tree`, run its tests, and take it out again."""
    sound = (tree / mutant.file).read_text()
    if sound.count(mutant.old) != 1:
        return Verdict("stale", f"{mutant.file} has changed", 0.0)
    changed = sound.replace(mutant.old, mutant.new)
    return tried(mutant.file, changed, mutant.killed_by, tree)


def tried(name: str, changed: str, tests: list[str], tree: Path) -> Verdict:
    """Let a file of `tree` be changed while tests run."""
    compile(changed, name, "exec")  # a syntax error would be killed by any test
    file = tree / name
    sound = file.read_text()
    file.write_text(changed)
    with tempfile.TemporaryDirectory(prefix="rq-mutant-") as base:
        try:
            return _run(tests, tree, base)
        finally:
            file.write_text(sound)
            _end_left(base)


def _end_left(base: str) -> None:
    """End what the bug has left running: that may be just what it does."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"RQ_ROOT={base}".encode() in (path / "environ").read_bytes():
                os.kill(int(path.name), signal.SIGKILL)


def _run(tests: list[str], tree: Path, base: str) -> Verdict:
    began = time.monotonic()
    try:
        run = run_pytest(tree, "-x", f"--basetemp={base}/tests", *tests)
    except subprocess.TimeoutExpired:
        return Verdict("survived", f"no end in {LIMIT:.0f} s", LIMIT)
    seconds = time.monotonic() - began
    last = (run.stdout.strip().splitlines() or [""])[-1]
    if run.returncode == FAILED and " failed" in last:
        return Verdict("killed", _first_failed(run.stdout), seconds)
    if run.returncode == 0 and " passed" not in last:
        return Verdict("skipped", last, seconds)
    return Verdict("survived", last, seconds)


def run_pytest(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in `tree`, as in CI: a test that is thinned today would not be found."""
    env = {name: text for name, text in os.environ.items() if name[:3] != "RQ_"}
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *words],
        cwd=tree,
        env=env | {"RQ_ROOT": str(tree / "no-root-was-named"), "CI": "true"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def _first_failed(output: str) -> str:
    for line in output.splitlines():
        if line.startswith("FAILED "):
            return line.removeprefix("FAILED ").partition(" - ")[0].partition("::")[2]
    return "?"
