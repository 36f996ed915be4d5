"""Clients of Redis and Disque that others have written, and how to get them.

Packages are fetched once, into a place beside the environment of this checkout; without a
way to a registry the tests that need them are skipped, and say so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from harness.broker import Broker
from harness.checkout import CHECKOUT

STORIES = Path(__file__).with_name("broker_stories")
REDIS_5, REDIS_NEWEST = "redis==5.2.1", "redis==8.1.0"
PYDISQUE = ("pydisque==0.1.5", "six==1.17.0")
NODE_REDIS = "redis@6.3.1"
_PLACE = CHECKOUT / ".venv" / "clients"
_PATIENCE = 60.0  # seconds


def python_packages(*packages: str) -> Path:
    """Return a directory with packages from PyPI."""
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-input")
    words = [sys.executable, *pip, "--disable-pip-version-check", "--target"]
    return _made(packages, lambda place: [*words, str(place), *packages])


def node_packages(*packages: str) -> Path:
    """Return a `node_modules` with packages from npm."""
    _need("node", "nodejs")
    _need("npm", "npm")
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    words += ["--ignore-scripts", "--prefix"]
    made = _made(packages, lambda place: [*words, str(place), *packages])
    return made / "node_modules"


def redis_cli() -> str:
    """Return the path of redis-cli."""
    return _need("redis-cli", "redis-tools")


def _need(program: str, package: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} -> apt-get install {package}")
    return path


def _made(packages: Sequence[str], command) -> Path:
    """Return a directory that a command has filled, now or in an earlier run."""
    place = _PLACE / "+".join(packages)
    with _alone():
        if place.is_dir():
            return place
        with tempfile.TemporaryDirectory(dir=_PLACE) as scratch:
            fresh = Path(scratch, "fresh")
            fresh.mkdir()
            try:
                subprocess.run(
                    command(fresh), check=True, capture_output=True, timeout=_PATIENCE
                )
            except (OSError, subprocess.SubprocessError):
                what = " ".join(packages)
                pytest.skip(f"no {what} -> a way to its registry")
            fresh.rename(place)
    return place


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    _PLACE.mkdir(exist_ok=True)
    fd = os.open(_PLACE, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def python_story(name: str, broker: Broker, *words: object, packages: Sequence[Path]):
    """Let a program of Python's tell its story with a broker, and packages on its path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages))}
    tell([sys.executable, STORIES / name, broker.port, *words], broker, env)


def node_story(name: str, broker: Broker, *words: object) -> None:
    """Let a program of Node's tell its story with a broker."""
    tell(["node", STORIES / name, broker.port, *words], broker, dict(os.environ))


def tell(words: Sequence[object], broker: Broker, env: dict[str, str]) -> None:
    """Run a program to its end; when it says `kill`, the broker is killed and started
    again under it."""
    with subprocess.Popen(
        list(map(str, words)),
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            if program.stdout.readline() == "kill\n":
                broker.restart()
            said, trouble = program.communicate("there\n", timeout=_PATIENCE)
        finally:
            program.kill()
    assert (said, program.returncode) == ("done\n", 0), trouble
