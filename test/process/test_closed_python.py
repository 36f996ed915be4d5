"""Set-up with a Python that only root may run, as pyenv and uv put it into root's home."""

import shutil
import tempfile
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.cli import define
from harness.installation import (
    USER,
    as_user,
    call,
    closed_python,
    give,
    path_without,
    place_for_all,
    python_for_all,
)
from harness.processes import only_root

from rq.layout import Root

pytestmark = [pytest.mark.process, only_root]

TELLS = "import os, sys\nprint(os.path.realpath(sys.executable))\n"
PROJECT = """[build-system]
requires = []
[project]
dependencies = []
[project.optional-dependencies]
"""
LOCK = "# What pyproject.toml asked for then:\n# base: \n# build: \n"
FOR_ALL = "apt-get install python3 python3-venv"


@pytest.fixture(scope="module")
def place():
    with place_for_all("rq-closed-") as path:
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def closed(place):
    return closed_python(place)


@pytest.fixture(scope="module")
def programs(place):
    """Give an environment without any Python."""
    pythons = [path.name for path in Path("/usr/bin").glob("python*")]
    return path_without(place / "programs", *pythons)


@pytest.fixture
def checkout(place, closed):
    """Give a checkout of USER whose .venv root has made, of its own Python."""
    code = Path(tempfile.mkdtemp(prefix="rq code ", dir=place))
    code.chmod(0o755)
    shutil.copytree(CHECKOUT / "bin", code / "bin", symlinks=True)
    (code / "rq").mkdir()
    (code / "rq/cli.py").write_text(TELLS)
    for name, text in (("pyproject.toml", PROJECT), ("requirements.lock", LOCK)):
        (code / name).write_text(text)
    python = code / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(closed)
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(code / name, code / ".venv" / f"rq.{name}")
    (code / ".venv/rq.stamp").write_text(f"{code}\n\n")
    give(code, USER)
    return code


def user(programs, *directories):
    """Return the options that run a program as USER."""
    path = ":".join([*map(str, directories), programs["PATH"]])
    return {**as_user(USER), "env": {"PATH": path, "HOME": "/", "LANG": "C.UTF-8"}}


def lines_of(done):
    print(done.stderr)  # noqa: T201 - for who reads why it failed
    return done.stderr.splitlines()


def assert_named(sentence, closed):
    assert f"may not run {closed}, and found no python3: install" in sentence
    assert FOR_ALL in sentence


@pytest.mark.parametrize("words", [("rq", "up"), ("rq-init",), ("rq-mgr", "start")])
def test_its_user_is_told_which_python_that_is_and_what_to_do(
    checkout, closed, programs, words
):
    done = call([checkout / "bin" / words[0], *words[1:]], **user(programs))
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = lines_of(done)
    assert_named(sentence, closed)


def test_root_that_sets_it_up_for_its_user_is_told_the_same(checkout, closed, programs):
    shutil.rmtree(checkout / ".venv")
    roots = {**programs, "PATH": f"{closed.parent}:{programs['PATH']}"}
    done = call([checkout / "bin/rq", "up"], env=roots)
    assert (done.returncode, done.stdout) == (1, "")
    going_on, sentence = lines_of(done)
    assert going_on.endswith(f"going on as {USER}")
    assert_named(sentence, closed)
    assert not (checkout / ".venv").exists()


@pytest.mark.slow
def test_with_a_python_for_all_its_user_makes_venv_again(
    checkout, closed, programs, place
):
    python = python_for_all(place)
    done = call([checkout / "bin/rq"], **user(programs, python.parent))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{python.resolve()}\n"
    assert "setting up .venv" in done.stderr


def test_a_venv_that_root_has_left_is_removed_by_root(checkout, programs, place):
    give(checkout / ".venv", 0)
    python = python_for_all(place)
    done = call([checkout / "bin/rq"], **user(programs, python.parent))
    assert done.returncode == 1
    (sentence,) = lines_of(done)
    assert f"{checkout}/.venv is to be made again" in sentence
    assert "as root remove it" in sentence


@pytest.mark.slow
def test_in_a_checkout_of_root_the_command_that_is_named_mends_it(
    checkout, closed, programs, place
):
    give(checkout, 0)
    python = python_for_all(place)
    options = user(programs, python.parent)
    done = call([checkout / "bin/rq"], **options)
    assert (done.returncode, done.stdout) == (1, "")
    (sentence,) = lines_of(done)
    assert f"{closed} lies in {closed.parent.parent}, closed to others" in sentence
    command = [python.resolve(), "-I", checkout / "bin/bootstrap.py"]
    assert sentence.endswith(f"as root run {' '.join(map(str, command))}")
    mended = call(command)
    assert mended.returncode == 0, mended.stderr
    done = call([checkout / "bin/rq"], **options)
    assert (done.stdout, done.stderr) == (f"{python.resolve()}\n", "")
    assert "closed to others" not in mended.stderr


@pytest.mark.slow
def test_root_that_makes_a_venv_for_itself_alone_is_told_so(checkout, closed):
    give(checkout, 0)
    shutil.rmtree(checkout / ".venv")
    done = call([closed, "-I", checkout / "bin/bootstrap.py"])
    assert done.returncode == 0, done.stderr
    assert f"{closed} lies in {closed.parent.parent}, closed to others" in done.stderr
    assert FOR_ALL in done.stderr
    assert "Traceback" not in done.stderr


def test_an_rq_of_a_user_does_not_run_with_it(place, closed):
    # root's launcher has begun to run; then it becomes RQ's user.
    root = Root(place / "root")
    root.path.mkdir()
    define(root.path, "work", "#!/bin/sh\necho done >&3\n")
    give(root.path, USER)
    script = place / "become.py"
    script.write_text(
        f"import sys\nsys.path[:0] = {[str(CHECKOUT), *packages()]!r}\n"
        "from rq.cli import main\n"
        f"sys.exit(main(['--root', {str(root.path)!r}, 'status']))\n"
    )
    python = place / "python3"  # as in .venv, a link
    python.symlink_to(closed)
    done = call([python, "-I", script])
    assert done.returncode == 4
    (sentence,) = lines_of(done)
    assert f"{closed} is not readable for {USER}, whose RQ this is" in sentence
    assert FOR_ALL in sentence


def packages():
    import site

    return site.getsitepackages()
