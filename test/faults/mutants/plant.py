"""Plants one bug at a time in a copy of the tree and runs the tests that must notice."""

from __future__ import annotations

import compileall
import itertools
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
COPIED = (
    "rq",
    "test",
    "bin",
    "docs",
    "examples",
    "package",
    "*.toml",
    "*.lock",
    "*.md",
)
COPIED += ("LICENSE", "MANIFEST.in", "Containerfile", "compose.yml", "pyspark_rq.py")
LIMIT = 540.0  # seconds for the tests of one mutant: many wait in vain, and 60 at most
FAILED, NONE_RAN = 1, 5  # exit statuses of pytest
PYTHON = (sys.executable, "-B")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


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
    """What the tests said of a mutant: killed, broken, survived, skipped or stale."""

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
        for source in itertools.chain.from_iterable(map(CHECKOUT.glob, COPIED)):
            target = Path(scratch) / source.name
            if source.is_dir():
                shutil.copytree(
                    source, target, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy2(source, target)
        # Each process that a test starts would compile RQ anew: none here writes bytecode.
        compileall.compile_dir(Path(scratch) / "rq", quiet=2)
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
        return Verdict("killed", _first(run.stdout, "FAILED"), seconds)
    if " error" in last:  # of a fixture, or of a module that cannot be imported
        return Verdict("broken", _first(run.stdout, "ERROR"), seconds)
    if run.returncode == 0 and " passed" not in last:
        return Verdict("skipped", last, seconds)
    return Verdict("survived", last, seconds)


def run_pytest(
    tree: Path, *words: str, limit: float = LIMIT
) -> subprocess.CompletedProcess[str]:
    """Run pytest in `tree`, as in CI: a test that is thinned today would not be found."""
    return subprocess.run(
        [*PYTHON, *PYTEST, *words],
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of tests in `tree`: all of them, as in CI, and no other RQ."""
    env = {name: text for name, text in os.environ.items() if name[:3] != "RQ_"}
    return env | {"RQ_ROOT": str(tree / "no-root-was-named"), "CI": "true"}


def _first(output: str, word: str) -> str:
    for line in output.splitlines():
        if line.startswith(f"{word} "):
            return line.removeprefix(f"{word} ").partition(" - ")[0]
    return "?"
