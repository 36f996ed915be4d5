"""Adding Spark to a .venv that works: all of it, or nothing and one sentence."""

import shutil
import subprocess
import sys

import pytest
from support import CHECKOUT

pytestmark = pytest.mark.process

# Stands for the Python of .venv: notes how pip is called, and fails when it is told to;
# or when it would build Spark in a way that needs what a venv of Debian 12 lacks.
PIP = """#!/bin/sh
[ "$PIP_USE_PEP517" = 1 ] || {{ echo "ERROR: invalid command bdist_wheel"; exit 1; }}
echo "$@" >> {root}/calls
[ ! -e {root}/fails ] || {{ echo "ERROR: no such thing"; exit 1; }}
"""
PROJECT = """
[project]
dependencies = ["small"]
[project.optional-dependencies]
spark = ["pyspark>=4.3", "pyarrow>=18"]
"""


@pytest.fixture
def checkout(tmp_path):
    """Give a checkout with a .venv in which all but Spark is installed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "rq").mkdir()
    shutil.copy(CHECKOUT / "bin/bootstrap.py", tmp_path / "bin")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP.format(root=tmp_path))
    python.chmod(0o755)
    (tmp_path / ".venv/rq.pyproject.toml").write_text(PROJECT)
    (tmp_path / ".venv/rq.stamp").write_text(f"{tmp_path}\n\n")
    return tmp_path


def bootstrap(checkout, *extras):
    return subprocess.run(
        [sys.executable, "-I", checkout / "bin/bootstrap.py", *extras],
        capture_output=True,
        text=True,
        check=False,
    )


def pip_calls(checkout):
    """Return the verbs that pip was called with."""
    try:
        lines = (checkout / "calls").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.partition(" pip ")[2] for line in lines]


def extras(checkout):
    return (checkout / ".venv/rq.stamp").read_text().splitlines()[1].split()


def test_spark_is_fetched_first_and_put_into_the_venv_then(checkout):
    ended = bootstrap(checkout, "spark")
    assert ended.returncode == 0, ended.stderr
    assert "about 1.1 GB, 3 minutes" in ended.stderr.splitlines()[0]
    fetched, installed = pip_calls(checkout)
    assert fetched.startswith("wheel ")
    assert "--no-cache-dir" in fetched
    assert f"--wheel-dir {checkout}/.venv/tmp/wheels" in fetched
    assert installed.startswith("install ")
    assert "--no-index" in installed
    assert not (checkout / ".venv/tmp").exists()
    assert extras(checkout) == ["spark"]


def test_what_is_installed_is_installed_once_and_stays(checkout):
    assert bootstrap(checkout, "spark").returncode == 0
    done = pip_calls(checkout)
    assert bootstrap(checkout, "spark").returncode == 0
    assert bootstrap(checkout).returncode == 0
    assert pip_calls(checkout) == done
    assert extras(checkout) == ["spark"]


def test_a_fetch_that_fails_leaves_the_venv_as_it_was(checkout):
    (checkout / "fails").touch()
    ended = bootstrap(checkout, "spark")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(
        "rq: the packages could not be installed: no such thing"
    )
    assert extras(checkout) == []
    assert not (checkout / ".venv/tmp").exists()
    assert bootstrap(checkout).returncode == 0
    assert len(pip_calls(checkout)) == 1


def test_without_room_for_spark_one_sentence_says_so(checkout):
    program = checkout / "bin/bootstrap.py"
    text = program.read_text()
    assert "SPARK_BYTES = 2_500_000_000" in text
    program.write_text(text.replace("SPARK_BYTES = 2_5", "SPARK_BYTES = 10**9 * 2_5"))
    ended = bootstrap(checkout, "spark")
    assert ended.returncode == 1
    assert f"GB free in {checkout} while it is installed" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert pip_calls(checkout) == []
    assert extras(checkout) == []
