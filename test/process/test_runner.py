"""The runner of tests: a flaky test is named and passes, a broken one fails."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.slow]

LINES = re.MULTILINE
CONFIG = """
[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "-p", "no:schemathesis", "-p", "no:anyio"]
pythonpath = ["test"]
markers = ["long: begun first", "slow: not every day"]
"""
FAILS_AT = """
from pathlib import Path

def fails(name, runs):
    path = Path(__file__).with_name(name)
    seen = path.read_text() if path.exists() else ""
    path.write_text(seen + "x")
    assert len(seen) not in runs, "this is the reason"
"""


ALONE, SIDE_BY_SIDE = "unit", "fuzz"  # parts: in one process, in several


def run(checkout, tests, *words, file="test_sample.py", part=ALONE, **env):
    """Run `tests`, lines of Python, as a part of a checkout of their own; return exit
    status, counts, output."""
    laid_out(checkout, tests, part, file)
    ran = subprocess.run(
        [sys.executable, "-s", checkout / "test/runner", part, *words],
        cwd=checkout,
        env={**os.environ, "TMPDIR": str(checkout), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.stderr, ran.stderr
    counts = re.findall(r"^(\d+) passed, (\d+) failed, 0 skipped$", ran.stdout, LINES)
    return ran.returncode, *map(int, counts[0]), ran.stdout


def laid_out(checkout, tests, part=ALONE, file="test_sample.py"):
    """Make a checkout that has the runner, and `tests` as one of its parts."""
    shutil.copytree(CHECKOUT / "test/runner", checkout / "test/runner")
    (checkout / ".venv").symlink_to(CHECKOUT / ".venv")
    (checkout / "pyproject.toml").write_text(CONFIG)
    (checkout / "test" / part).mkdir()
    (checkout / "test" / part / file).write_text(FAILS_AT + tests)


def test_what_is_said_of_the_environment_of_tests_holds(tmp_path):
    """Knobs reach them, signals that were ignored do not, and their files lie apart from
    those of other runs."""
    text = (CHECKOUT / "CONTRIBUTING.md").read_text()
    names = set(re.findall(r"`(RQ_[A-Z_]+)=", text))
    assert len(names) > 4
    tests = f"""import os, signal
def test_a(tmp_path):
    assert not {names} - set(os.environ)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGQUIT) is signal.SIG_DFL
    assert 'rq-tests-' in str(tmp_path)
"""
    numbers = (signal.SIGINT, signal.SIGQUIT)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        told = dict.fromkeys(names, "1")
        status, passed, failed, output = run(tmp_path, tests, **told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert (status, passed, failed) == (0, 1, 0), output
    assert list(tmp_path.glob("rq-tests-*")) == []


def test_a_test_that_fails_once_passes_and_is_named(tmp_path):
    tests = "def test_a(): fails('a', [0])\ndef test_b(): pass\n"
    status, passed, failed, output = run(tmp_path, tests, part=SIDE_BY_SIDE)
    assert (status, passed, failed) == (0, 2, 0)
    assert "this is the reason" in output
    table = output.rpartition("part ")[2]
    assert "flaky, failed once and then passed 2 times: " in table
    assert "test_sample.py::test_a" in table
    assert "test_sample.py::test_b" not in table


def test_a_test_that_fails_again_is_a_failure_and_what_it_left_is_told_of(tmp_path):
    tests = "def test_a(tmp_path): (tmp_path / 'left').touch(); fails('a', [0, 2])\n"
    status, passed, failed, output = run(tmp_path, tests)
    assert (status, passed, failed) == (1, 0, 1)
    assert "flaky" not in output
    [told] = re.findall(r"^what the failed tests have left: (.+)$", output, LINES)
    assert list(Path(told).glob("unit/**/left"))


@pytest.mark.parametrize("word", ["--no-retry", "-x"])
def test_who_hunts_flaky_tests_or_wants_the_first_failure_sees_it_once(tmp_path, word):
    tests = "".join(f"def test_{k}(): fails('{k}', [0])\n" for k in range(2))
    status, passed, failed, output = run(tmp_path, tests, word)
    assert status == 1
    assert failed
    assert not passed
    assert "again, alone" not in output


def test_a_test_that_is_skipped_when_it_is_run_again_has_not_passed(tmp_path):
    tests = """import pytest
def test_a():
    if Path(__file__).with_name("a").exists():
        pytest.skip("no more")
    fails("a", [0])
"""
    status, passed, failed, _ = run(tmp_path, tests)
    assert (status, passed, failed) == (1, 0, 1)


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path):
    status, _, failed, _ = run(tmp_path, "raise RuntimeError('no')\n")
    assert status == 1
    assert failed


SLOW = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_slow(number): pass

def test_quick(): pass
"""


@pytest.mark.parametrize(
    ("ci", "words", "expected"),
    [("", [], 5), ("", ["-k", "slow"], 10), ("true", [], 5), ("", ["--all"], 11)],
    ids=["every day", "named", "in CI", "all"],
)
def test_of_the_slow_tests_a_share_is_run(tmp_path, ci, words, expected):
    for shared in ("conftest.py", "harness/__init__.py", "harness/extent.py"):
        (tmp_path / "test/harness").mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / "test" / shared, tmp_path / "test" / shared)
    said = {"CI": ci, "RQ_TEST_COMMIT": "9"}
    status, passed, failed, _ = run(tmp_path, SLOW, *words, **said)
    assert (status, passed, failed) == (0, expected, 0)


@pytest.mark.parametrize("full", ["", "true"], ids=["every day", "in CI"])
def test_of_the_files_a_share_is_run_every_day_and_others_with_each_commit(
    tmp_path, full
):
    laid_out(tmp_path, "def test_a(): pass\n", file="test_0.py")
    for number in range(1, 8):
        other = tmp_path / "test" / ALONE / f"test_{number}.py"
        other.write_text("def test_a(): pass\n")
    (tmp_path / "test/harness").mkdir()
    for shared in ("conftest.py", "harness/__init__.py", "harness/extent.py"):
        shutil.copy(CHECKOUT / "test" / shared, tmp_path / "test" / shared)
    runs = []
    for commit in range(4):
        words = ["-q", "-o", "file_share=4", "--collect-only", f"test/{ALONE}"]
        ran = subprocess.run(
            [sys.executable, "-s", "-m", "pytest", *words],
            cwd=tmp_path,
            env={**os.environ, "CI": full, "RQ_TEST_COMMIT": str(commit)},
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(re.findall(r"(test_\d)\.py", ran.stdout))
    every = [f"test_{number}" for number in range(8)]
    if full:
        assert runs == [every] * 4
    else:
        assert [len(run) for run in runs] == [2] * 4
        assert sorted(name for run in runs for name in run) == every


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_runner_that_is_ended_ends_what_its_tests_started(tmp_path, number):
    tests = """import os, subprocess
def test_a():
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    path = Path(__file__).with_name("pids")
    path.with_suffix(".new").write_text(f"{os.getpid()} {child.pid}")
    path.with_suffix(".new").rename(path)
    child.wait()
"""
    laid_out(tmp_path, tests)
    runner = subprocess.Popen(
        [sys.executable, "-s", tmp_path / "test/runner", ALONE],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pids = tmp_path / "test" / ALONE / "pids"
    wait_until(pids.exists, seconds=60)
    runner.send_signal(number)
    assert runner.wait(60) == 128 + number
    assert not [pid for pid in pids.read_text().split() if Path("/proc", pid).exists()]
