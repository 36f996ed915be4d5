"""Setting up .venv: what is pinned and nothing else, all of it or one sentence."""

import shutil
import subprocess
import sys

import pytest
from harness.checkout import CHECKOUT

pytestmark = pytest.mark.process

# Stands for the Python of .venv: notes how pip is called, and fails when it is told to;
# or when it would build Spark in a way that needs what a venv of Debian 12 lacks.
PIP = """#!/bin/sh
case "$PIP_USE_PEP517 $*" in "1 "* | *" install "*) ;; *) false ;; esac || {{
    echo "ERROR: invalid command bdist_wheel"; exit 1; }}
echo "$@" >> {root}/calls
case "$*" in *--requirement*) for last; do :; done; cat "$last" >> {root}/wanted ;; esac
[ ! -e {root}/fails ] || {{ echo "ERROR: no such thing"; exit 1; }}
"""
PROJECT = """
[build-system]
requires = ["setuptools"]
[project]
dependencies = ["small"]
[project.optional-dependencies]
spark = ["pyspark>=4.3", "pyarrow>=18"]
"""
LOCK = """# What pyproject.toml asked for then:
# base: small
# build: setuptools | wheel
# spark: pyarrow>=18 | pyspark>=4.3
# for: base
small==1.0 \\
    --hash=sha256:00
# for: build
setuptools==80 \\
    --hash=sha256:01
# for: spark
pyarrow==18.1 ; python_full_version < '3.12' \\
    --hash=sha256:02
# for: spark
pyspark==4.3.0 \\
    --hash=sha256:03 \\
    --hash=sha256:04
"""


@pytest.fixture
def checkout(tmp_path):
    """Give a checkout with a .venv in which all but Spark is installed."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "rq").mkdir()
    for name in ("bootstrap.py", "pins.py", "programs.py", "pythons.py"):
        shutil.copy(CHECKOUT / "bin" / name, tmp_path / "bin")
    (tmp_path / "requirements.lock").write_text(LOCK)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP.format(root=tmp_path))
    python.chmod(0o755)
    (tmp_path / ".venv/rq.pyproject.toml").write_text(PROJECT)
    (tmp_path / ".venv/rq.requirements.lock").write_text(LOCK)
    (tmp_path / ".venv/rq.stamp").write_text(f"{tmp_path}\n\n")
    return tmp_path


def bootstrap(checkout, *extras, umask=-1):
    return subprocess.run(
        [sys.executable, "-I", checkout / "bin/bootstrap.py", *extras],
        capture_output=True,
        text=True,
        check=False,
        umask=umask,
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
    builders, fetched, installed = pip_calls(checkout)
    assert f"--target {checkout}/.venv/tmp/build" in builders
    assert fetched.startswith("wheel ")
    assert "--no-build-isolation" in fetched
    for call in (builders, fetched):
        assert "--require-hashes" in call
        assert "--no-deps" in call
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


def test_only_what_is_pinned_is_asked_for_with_its_hashes(checkout):
    assert bootstrap(checkout, "spark").returncode == 0
    pin = "pyspark==4.3.0 \\\n    --hash=sha256:03 \\\n    --hash=sha256:04\n"
    wanted = (checkout / "wanted").read_text()
    assert pin in wanted
    assert "setuptools==80 \\\n    --hash=sha256:01\n" in wanted
    assert "small" not in wanted  # it is there


def test_a_pin_that_changed_is_installed_again_and_alone(checkout):
    lock = checkout / "requirements.lock"
    lock.write_text(LOCK.replace("small==1.0", "small==1.1"))
    ended = bootstrap(checkout)
    assert ended.returncode == 0, ended.stderr
    (installed,) = pip_calls(checkout)
    assert "--require-hashes" in installed
    assert "small==1.1" in (checkout / "wanted").read_text()
    assert "pyspark" not in (checkout / "wanted").read_text()


def test_an_edited_list_without_its_pins_is_one_sentence(checkout):
    project = checkout / "pyproject.toml"
    project.write_text(PROJECT.replace('"small"', '"small", "other>=2"'))
    ended = bootstrap(checkout)
    assert ended.returncode == 1
    (sentence,) = ended.stderr.splitlines()
    assert "does not pin what pyproject.toml asks for (other>=2): run " in sentence
    assert sentence.endswith(f"{checkout}/bin/lock.py")
    assert pip_calls(checkout) == []


@pytest.mark.parametrize("name", [".venv.lock", ".venv/tmp", ".venv/lib", ".venv"])
def test_a_link_planted_in_the_checkout_is_refused_in_one_sentence(
    checkout, name, tmp_path_factory
):
    target = tmp_path_factory.mktemp("elsewhere")
    planted = checkout / name
    if name == ".venv":
        planted.rename(checkout / "old")
    planted.symlink_to(target / "made" if name == ".venv.lock" else target)
    ended = bootstrap(checkout, "spark")
    assert ended.returncode == 1
    (sentence,) = ended.stderr.splitlines()
    assert f"{planted} is a link" in sentence
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        ".venv.log",
        ".venv/rq.wanted.txt",
        ".venv/rq.stamp.new",
        ".venv/rq.requirements.lock.new",
        ".venv/rq.pyproject.toml.new",
    ],
)
@pytest.mark.parametrize("plant", ["symlink_to", "hardlink_to"])
def test_a_file_planted_in_the_checkout_writes_nowhere_else(
    checkout, name, plant, tmp_path_factory
):
    target = tmp_path_factory.mktemp("elsewhere") / "precious"
    target.write_text("precious")
    getattr(checkout / name, plant)(target)
    (checkout / "requirements.lock").write_text(LOCK.replace("1.0", "1.1"))
    assert bootstrap(checkout).returncode == 0
    assert target.read_text() == "precious"


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


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_whatever_the_umask_others_may_read_what_is_installed_and_not_change_it(
    checkout, umask
):
    ended = bootstrap(checkout, "spark", umask=umask)
    assert ended.returncode == 0, ended.stderr
    made = [checkout / "calls", checkout / "wanted", checkout / ".venv/rq.stamp"]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o644}


def test_nobody_who_may_only_read_the_checkout_can_hold_up_its_set_up(checkout):
    lock = checkout / ".venv.lock"
    lock.touch(0o644)  # as it was once
    ended = bootstrap(checkout, "spark")
    assert ended.returncode == 0, ended.stderr
    assert lock.stat().st_mode & 0o777 == 0o600
